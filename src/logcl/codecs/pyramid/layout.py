"""A pyramid of cosine transforms, and in which order its coefficients are coded.

    image ── 4x4 DCT of every block ── 15 coefficients per block ── finest stage
               └─ mean of every block: an image a sixteenth as large ── 4x4 DCT ... ── the next stage

Stages are coded from the coarsest to the finest, in each of them brightness before colour, low frequencies
before high ones, and the blocks of a chessboard's white squares before those of its black ones. The whole
transform is orthonormal, so squared errors of coefficients are squared errors of pixels.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.codecs.transform import basis
from logcl.core.settings import ImageShape

SIDE, SMALL_SIDE = 4, 2
"""Sides of blocks, and of the blocks of stages with at most three pixels a side."""
PLACES = 3
"""Rows of a network's input that say where a symbol is: colour of its square, step, stage."""
AROUND = ((-1, 0), (0, -1), (0, 1), (1, 0))
"""The neighbours of a block that are on squares of the other colour."""
RING = (*AROUND, (-1, -1), (-1, 1), (1, -1), (1, 1))
"""All its neighbours."""
_GREY_OF_COLOUR = 0.5 * math.log2(3)  # brightness of three channels is √3 times as large as that of one


class Stage(NamedTuple):
    """One transform."""

    side: int
    """Of blocks."""
    height: int
    """Of the transformed image, in pixels."""
    width: int

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of blocks; the last may reach over the edge."""
        return -(-self.height // self.side), -(-self.width // self.side)

    @property
    def classes(self) -> int:
        """Coefficients of a block beside its mean."""
        return self.side**2 - 1


@functools.cache
def stages(image_shape: ImageShape) -> tuple[Stage, ...]:
    """The transforms of an image, the finest first, down to a single pixel."""
    _, height, width = image_shape
    found = []
    while height * width > 1:
        stage = Stage(SIDE if max(height, width) > 3 else SMALL_SIDE, height, width)
        found.append(stage)
        height, width = stage.grid
    return tuple(found)


@functools.cache
def order(side: int) -> tuple[tuple[int, int], ...]:
    """Vertical and horizontal frequency of the coefficients in coding order; the mean is not among them."""
    both = [(u, v) for u in range(side) for v in range(side) if u + v]
    return tuple(sorted(both, key=lambda pair: (sum(pair), abs(pair[0] - pair[1]), pair)))


def first_rows(side: int, channel: int) -> int:
    """Rows that are known of every coefficient: places, finished channels, means around."""
    finished = side**2 - 1 + len(RING)
    return PLACES + channel * finished + len(RING)


def known_rows(side: int, channel: int, number: int, black: bool) -> int:
    """Rows of the network's input for a coefficient; they are the first ones of `all_rows`.

    After those of `first_rows` come, for every coefficient in coding order, its symbols around and its own.
    On black squares those around are known of the coefficient itself, too.
    """
    return first_rows(side, channel) + number * (len(AROUND) + 1) + (len(AROUND) if black else 0)


def all_rows(side: int, channel: int) -> int:
    """Rows that there are when all but the last coefficient is known, and that one on white squares."""
    return known_rows(side, channel, side**2 - 2, black=True)


def fineness(step: float, channels: int, channel: int) -> float:
    """The step as networks see it: how often it was halved, relative to a grey image of equal contrast."""
    return -math.log2(step) + (_GREY_OF_COLOUR if channels == 3 and channel == 0 else 0)


def analyse(images: Tensor) -> tuple[list[Tensor], Tensor]:
    """Images (n, C, H, W) in [0, 1] → coefficients (n, C, classes, rows, columns) by stage; last means."""
    n, channels, height, width = images.shape
    plane = images - 0.5
    if channels == 3:
        plane = torch.einsum("nchw,uc->nuhw", plane, basis(3))
    found = []
    for stage in stages((channels, height, width)):
        rows, columns = stage.grid
        missing = (0, columns * stage.side - stage.width, 0, rows * stage.side - stage.height)
        plane = nn.functional.pad(plane, missing, mode="replicate") if any(missing) else plane
        tiles = plane.reshape(n, channels, rows, stage.side, columns, stage.side)
        both = torch.einsum("ncyhxw,uh,vw->ncuvyx", tiles, basis(stage.side), basis(stage.side))
        found.append(torch.stack([both[:, :, u, v] for u, v in order(stage.side)], dim=2))
        plane = both[:, :, 0, 0]
    return found, plane.reshape(n, channels)


def raise_stage(stage: Stage, means: Tensor, coefficients: Tensor) -> Tensor:
    """Means (n, C, rows, columns) and coefficients (n, C, classes, rows, columns) → (n, C, H, W)."""
    n, channels, _, rows, columns = coefficients.shape
    both = means.new_zeros((n, channels, stage.side, stage.side, rows, columns))
    both[:, :, 0, 0] = means
    for number, (u, v) in enumerate(order(stage.side)):
        both[:, :, u, v] = coefficients[:, :, number]
    plane = torch.einsum("ncuvyx,uh,vw->ncyhxw", both, basis(stage.side), basis(stage.side))
    plane = plane.reshape(n, channels, rows * stage.side, columns * stage.side)
    return plane[:, :, : stage.height, : stage.width]


def to_pixels(plane: Tensor) -> Tensor:
    """(n, C, H, W) back from brightness and colour differences, in [0, 1]."""
    if plane.shape[1] == 3:
        plane = torch.einsum("nuhw,uc->nchw", plane, basis(3))
    return (plane + 0.5).clamp_(0, 1)


@functools.cache
def integer_basis(side: int) -> NDArray[np.int64]:
    """The basis in units of 2^-12, rounded; no value is near a half."""
    result: NDArray[np.int64] = np.rint(basis(side).double().numpy() * 2**12).astype(np.int64)
    return result
