"""A stem for large images: it reduces them to a grid of at most 32x32 cells, on which a network works.

    image (C, H, W) → blocks of pixels as channels → 3x3 convolution → 2x2 pooling → normalisation → grid

So the cost of a network hardly grows with the side of its images. Blocks are moved into channels by a view,
not by a strided convolution: the kernels overlap all the same, because each sees three blocks a side. A stem
without weights, blocks alone, was 5 points less accurate on photographs of 128x128.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from logcl.core.settings import ImageShape
from logcl.nn.networks.layers import BatchNorm, ImageClassifier, padded

FLAT = ("mlp", "linear", "hidden")
"""Networks without convolutions, which have no stem."""
_LARGE, _GRID, _LEAST = 64 * 64, 32 * 32, 8  # pixels; cells of the grid, and of its shorter side


def is_large(image_shape: ImageShape) -> bool:
    """Whether a network for images of this shape has a stem."""
    return image_shape[1] * image_shape[2] > _LARGE


def reduction(network: str, image_shape: ImageShape) -> int:
    """How many times a new network's stem reduces both sides: a power of two, 1 for images up to 64x64."""
    _, height, width = image_shape
    times = 1
    if network in FLAT or not is_large(image_shape):
        return times
    while height * width > _GRID * times**2 and min(height, width) >= 2 * times * _LEAST:
        times *= 2
    return times


def stem_channels(width: int) -> int:
    """Channels of the grid, before a network with `width` channels in its first layers."""
    return padded(-(-width // 2))


def grid(image_shape: ImageShape, times: int, width: int) -> ImageShape:
    """What is left of an image: (channels, rows, columns)."""
    _, height, columns = image_shape
    return stem_channels(width), -(-height // times), -(-columns // times)


class Stem(nn.Module):
    """(n, C, H, W) → (n, channels, ⌈H / times⌉, ⌈W / times⌉), `times` being even."""

    def __init__(self, image_shape: ImageShape, times: int, channels: int) -> None:
        super().__init__()
        self.times = times
        self.convolution = nn.Conv2d(image_shape[0] * (times // 2) ** 2, channels, 3, padding=1, bias=False)
        self.layers = nn.Sequential(nn.MaxPool2d(2), BatchNorm(channels), nn.GELU())

    def forward(self, image: Tensor) -> Tensor:
        """Incomplete blocks at the edges repeat the last pixels."""
        down, right = (-side % self.times for side in image.shape[2:])
        whole = nn.functional.pad(image, (0, right, 0, down), mode="replicate") if down or right else image
        cells: Tensor = self.layers(self.convolution(blocks(whole, self.times // 2)))
        return cells


class Stemmed(ImageClassifier):
    """A network behind a stem; the head is the network's."""

    def __init__(self, stem: Stem, network: ImageClassifier) -> None:
        super().__init__()
        self.stem, self.head = stem, network.head
        del network.head
        self.network = network

    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, features)."""
        return self.network.embed(self.stem(image))


def blocks(image: Tensor, side: int) -> Tensor:
    """(n, C, H, W) → (n, C · side², H / side, W / side), channels last: a block of pixels becomes a cell."""
    if side == 1:
        return image
    n, channels, height, width = image.shape
    rows, columns = height // side, width // side
    apart = image.reshape(n, channels, rows, side, columns, side).permute(0, 2, 4, 1, 3, 5)
    cells = apart.reshape(n, rows, columns, channels * side**2).permute(0, 3, 1, 2)
    return cells.contiguous(memory_format=torch.channels_last)
