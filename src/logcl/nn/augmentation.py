"""Data augmentation for classifiers: the paper's aug(x), random flips and random shifts.

Works on batches (n, C, H, W) of floats in [0, 1] and draws from torch's global state, which `training.fit`
seeds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from logcl.core.settings import ClassifierSettings


def augment(images: Tensor, settings: ClassifierSettings) -> Tensor:
    """Flip, shift and add white noise, as configured."""
    if settings.mirror is True:  # not if it is still to be measured
        images = mirrored(images)
    if settings.shift:
        images = shifted(images, settings.shift)
    if settings.noise:
        images = images + settings.noise * torch.randn_like(images)
    return images


def mirrored(images: Tensor) -> Tensor:
    """Each image flipped horizontally with probability 1/2."""
    chosen = torch.rand(len(images), device=images.device) < 0.5
    return torch.where(chosen[:, None, None, None], images.flip(3), images)


def shifted(images: Tensor, most: int) -> Tensor:
    """Each image shifted by up to `most` pixels along both axes, with reflected edges."""
    height, width = images.shape[2:]
    most = min(most, height - 1, width - 1)
    padded = nn.functional.pad(images, (most, most, most, most), mode="reflect")
    down, right = torch.randint(2 * most + 1, (2, len(images)), device=images.device)
    # Rows, then columns: two gathers instead of one slice per image.
    rows = (down[:, None] + torch.arange(height, device=images.device))[:, None, :, None]
    columns = (right[:, None] + torch.arange(width, device=images.device))[:, None, None, :]
    tall = padded.gather(2, rows.expand(-1, images.shape[1], -1, padded.shape[3]))
    return tall.gather(3, columns.expand(-1, images.shape[1], height, -1))
