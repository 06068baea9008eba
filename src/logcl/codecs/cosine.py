"""The cosine transform as a decoder and its encoder: what natural images need no training for.

An image is cut into blocks of at most 32x32; each block is a sum of cosines over channels, rows and
columns (the orthonormal DCT-II in three dimensions). On natural images this is near the best linear
transform there is: the one across three channels is brightness and two colour differences.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn

from logcl.core.settings import ImageShape

_LARGEST_BLOCK = 32


class CosineDecoder(nn.Module):
    """Coefficients of blocks → images. Its one weight is the size of a coefficient's unit."""

    def __init__(self, image_shape: ImageShape) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.unit = nn.Parameter(torch.ones(()))

    def forward(self, code: Tensor) -> Tensor:
        """(n · blocks, coefficients) → (n, C, H, W)."""
        (channels, height, width), (rows, columns) = block(self.image_shape), grid(self.image_shape)
        bases = (_basis(side).to(code.device) for side in (channels, height, width))
        pixels = torch.einsum("nuvw,uc,vh,wx->nchx", code.unflatten(1, (channels, height, width)), *bases)
        tiles = (pixels * self.unit).reshape(-1, rows, columns, channels, height, width)
        image = tiles.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, rows * height, columns * width)
        return (image + 0.5).clamp(0, 1)[:, :, : self.image_shape[1], : self.image_shape[2]]


def coefficients(images: Tensor) -> Tensor:
    """Images (n, C, H, W) in [0, 1] → coefficients of their blocks, (n · blocks, coefficients)."""
    shape: ImageShape = (images.shape[1], images.shape[2], images.shape[3])
    (channels, height, width), (rows, columns) = block(shape), grid(shape)
    missing = (0, columns * width - shape[2], 0, rows * height - shape[1])
    padded = nn.functional.pad(images - 0.5, missing, mode="replicate")
    tiles = padded.reshape(-1, channels, rows, height, columns, width).permute(0, 2, 4, 1, 3, 5)
    bases = (_basis(side).to(images.device) for side in (channels, height, width))
    blocks = tiles.reshape(-1, channels, height, width)
    return torch.einsum("nchx,uc,vh,wx->nuvw", blocks, *bases).flatten(1)


def grid(image_shape: ImageShape) -> tuple[int, int]:
    """Rows and columns of blocks."""
    _, height, width = image_shape
    return -(-height // _LARGEST_BLOCK), -(-width // _LARGEST_BLOCK)


def block(image_shape: ImageShape) -> ImageShape:
    """Channels, height and width of a block; blocks are equal, so a last one may reach over the edge."""
    channels, height, width = image_shape
    rows, columns = grid(image_shape)
    return channels, -(-height // rows), -(-width // columns)


def coefficient_count(image_shape: ImageShape) -> int:
    """Numbers in the code of one block."""
    return math.prod(block(image_shape))


@functools.lru_cache
def _basis(side: int) -> Tensor:
    """(frequency, position): the orthonormal DCT-II."""
    frequency, position = torch.arange(side)[:, None], torch.arange(side)[None]
    cosines = torch.cos(math.pi * frequency * (position + 0.5) / side) * math.sqrt(2 / side)
    cosines[0] /= math.sqrt(2)
    return cosines
