"""A small network that removes the traces of quantisation from decoded images: edges of blocks, ringing.

    image (C, H, W) ── 2x2 pixels to channels, and the step's fineness ── 4 convolutions ── added

What it adds is small, and nothing is decoded by it: floats may differ a little from machine to machine.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

WIDTH, LAYERS = 32, 4
_FINENESS_UNIT = 8.0  # halvings of a step, to inputs of usual size


class Restoration(nn.Module):
    """For images of one number of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        widths = [4 * channels + 1, *[WIDTH] * (LAYERS - 1), 4 * channels]
        self.layers = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1, padding_mode="replicate")
            for before, after in pairwise(widths)
        )

    def forward(self, images: Tensor, fineness: Tensor) -> Tensor:
        """Images (n, C, H, W), about [0, 1], and how often their step was halved (n,) → better images."""
        _, _, height, width = images.shape
        padded = nn.functional.pad(images, (0, width % 2, 0, height % 2), mode="replicate")
        values = nn.functional.pixel_unshuffle(padded - 0.5, 2)
        about = (fineness / _FINENESS_UNIT)[:, None, None, None].expand(-1, 1, *values.shape[2:])
        values = torch.cat([values, about.to(values.dtype)], dim=1)
        for layer in self.layers[:-1]:
            values = nn.functional.relu(layer(values))
        change = nn.functional.pixel_shuffle(self.layers[-1](values), 2)
        return images + change[:, :, :height, :width]
