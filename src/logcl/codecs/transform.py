"""The cosine transform (DCT-II), close to the best linear one for natural images."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor


@functools.cache
def basis(side: int) -> Tensor:
    """(frequency, position): the orthonormal DCT-II."""
    frequency, position = torch.arange(side)[:, None], torch.arange(side)[None]
    cosines = torch.cos(math.pi * frequency * (position + 0.5) / side) * math.sqrt(2 / side)
    cosines[0] /= math.sqrt(2)
    return cosines
