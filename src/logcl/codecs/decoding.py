"""Codes through decoders in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.codecs.base import Rows
from logcl.core.images import rows_at_once
from logcl.core.settings import ImageShape
from logcl.nn.device import choose_device


@torch.no_grad()
def decode(
    decoder: Callable[[Tensor], Tensor],
    inputs: Callable[[Rows], NDArray[np.float32]],
    rows: Rows,
    image_shape: ImageShape,
    widest: int = 0,
) -> Tensor:
    """Images (m, C, H, W), uint8 on the CPU, of what `inputs(rows)` gives the decoder.

    widest: values per image in the decoder's widest layer.
    """
    at_once, device = rows_at_once(image_shape, widest), choose_device()
    images = torch.empty((len(rows), *image_shape), dtype=torch.uint8)
    for start in range(0, len(rows), at_once):
        decoded = decoder(torch.from_numpy(inputs(rows[start : start + at_once])).to(device))
        images[start : start + at_once] = decoded.mul_(255).round_().to("cpu", torch.uint8)
    return images
