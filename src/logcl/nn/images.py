"""Images as tensors, and through networks in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.core.images import rows_at_once
from logcl.nn.device import choose_device


def to_unit(pixels: Tensor) -> Tensor:
    """uint8 → float32 in [0, 1]."""
    return pixels.to(torch.float32) / 255


@torch.no_grad()
def in_blocks(
    function: Callable[[Tensor], Tensor], images: Tensor | NDArray[np.uint8], widest: int = 0
) -> Tensor:
    """What `function` gives for uint8 images (n, C, H, W) as floats in [0, 1]; the result is on the CPU.

    widest: values per image in the widest layer of a network, if known.
    """
    rows, device = rows_at_once(images.shape[1:], widest), choose_device()
    outputs = []
    for start in range(0, max(len(images), 1), rows):  # of no images one empty block, for the shape
        block = images[start : start + rows]
        if isinstance(block, np.ndarray):
            block = torch.from_numpy(block.copy())  # it may be a read-only memory map
        outputs.append(function(to_unit(block.to(device))).cpu())
    return torch.cat(outputs)
