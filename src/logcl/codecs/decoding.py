"""Images through networks in blocks of bounded size."""

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
from logcl.nn.images import to_unit


@torch.no_grad()
def decode(
    decoder: Callable[[Tensor], Tensor],
    inputs: Callable[[Rows], NDArray[np.float32]],
    rows: Rows,
    image_shape: ImageShape,
) -> Tensor:
    """Images (m, C, H, W), uint8 on the CPU, of what `inputs(rows)` gives the decoder."""
    at_once, device = rows_at_once(image_shape), choose_device()
    blocks = [
        (decoder(torch.from_numpy(inputs(rows[start : start + at_once])).to(device)) * 255)
        .round()
        .to("cpu", torch.uint8)
        for start in range(0, len(rows), at_once)
    ]
    return torch.cat(blocks) if blocks else torch.empty((0, *image_shape), dtype=torch.uint8)


@torch.no_grad()
def in_blocks(function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """What `function` gives for uint8 images (n, C, H, W), n ≥ 1, as floats in [0, 1]; on the CPU."""
    device = choose_device()
    blocks = images.split(rows_at_once(images.shape[1:]))
    return torch.cat([function(to_unit(block.to(device))).cpu() for block in blocks])
