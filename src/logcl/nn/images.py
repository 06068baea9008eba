"""Images as tensors, and through networks in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core.images import rows_at_once
from logcl.nn.device import choose_device

_C1, _C2 = 0.01**2, 0.03**2  # for windows without brightness or contrast


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


def similarity(x: NDArray[np.uint8], z: NDArray[np.uint8], window: int = 8) -> float:
    """Mean structural similarity of images (n, C, H, W) (Wang et al. 2004), brightness in square windows."""

    def mean(image: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(image, [min(window, side) for side in x.shape[2:]], 1)

    total = 0.0
    rows = rows_at_once(x.shape[1:])
    for start in range(0, len(x), rows):
        a, b = (to_unit(torch.from_numpy(v[start : start + rows])).mean(dim=1, keepdim=True) for v in (x, z))
        mean_a, mean_b = mean(a), mean(b)
        var_a, var_b = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2
        both = mean(a * b) - mean_a * mean_b
        found = (2 * mean_a * mean_b + _C1) * (2 * both + _C2)
        found /= (mean_a**2 + mean_b**2 + _C1) * (var_a + var_b + _C2)
        total += float(found.flatten(1).mean(dim=1).sum())
    return total / len(x)
