"""Images as tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def to_unit(pixels: Tensor) -> Tensor:
    """uint8 → float32 in [0, 1]."""
    return pixels.to(torch.float32) / 255
