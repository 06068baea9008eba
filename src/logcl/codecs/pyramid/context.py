"""What is known of each integer of a pyramid when it is coded, and the networks that predict it from that."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logcl.codecs.pyramid import layout
from logcl.codecs.pyramid.networks import predictor
from logcl.codecs.pyramid.predictor import INPUT_UNIT, UNIT, Distributions, Floats, squash
from logcl.core.settings import ImageShape

STEPS = 256
"""Steps are 2^(-j / 32) for j from 0 to 255."""
PER_OCTAVE = 32
_BASIS_BITS = 24  # of the product of two integer basis functions
_AT_ONCE = 2**15  # blocks of the finest stage that are coded together

Integers = NDArray[np.int64]


def step_of(index: Integers) -> NDArray[np.float64]:
    """Steps by their numbers, pixels in [0, 1]."""
    return np.asarray(2.0 ** (-np.asarray(index) / PER_OCTAVE))


class Format(NamedTuple):
    """What must be known to read a stream."""

    shape: ImageShape
    """Of its images."""
    networks: int
    """Version of the networks that predict its integers."""


class Wave(NamedTuple):
    """Symbols that are coded together: one coefficient of all blocks of one colour."""

    stage: int
    channel: int
    number: int
    black: bool
    where: NDArray[np.intp]
    """Positions of the blocks in the grid."""


class Contexts:
    """The order of symbols, and what is known of them; for encoding and for decoding.

    Arrays have images in the last axis, slot by slot: the first image of every stream, then the second, ...
    """

    def __init__(self, format_: Format, steps: Integers, together: int) -> None:
        """steps: number of each stream's step, (streams,)."""
        self.shape, self.version = format_
        self.together, self.streams = together, len(steps)
        self.indices = np.tile(steps, together)
        self.steps = step_of(self.indices)
        self.images = len(self.indices)

    @property
    def mean_bits(self) -> Integers:
        """Bits of the mean of a whole image, which is coded without a prediction, (n,)."""
        gain = math.prod(stage.side for stage in layout.stages(self.shape))
        largest = 0.5 * math.sqrt(self.shape[0]) * gain / self.steps
        return np.ceil(np.log2(2 * largest + 3)).astype(np.int64)

    def walk(self, means: Integers, code: Callable[[Wave, Distributions], Integers]) -> list[Integers]:
        """Stage by stage, from the mean of whole images (C, n): `code` says what a wave's symbols (w, n) are.

        Returns symbols (C, classes, blocks, n) of each stage, the finest first.
        """
        channels = self.shape[0]
        stages = layout.stages(self.shape)
        planes = means[:, None] * UNIT  # (C, blocks, n)
        found: list[Integers] = []
        for number in range(len(stages) - 1, -1, -1):
            stage = stages[number]
            rows, columns = stage.grid
            symbols = np.zeros((channels, stage.classes, rows * columns, self.images), np.int64)
            squares = _squares(rows, columns)
            finished = [np.zeros((0, len(square), self.images), np.float32) for square in squares]
            for channel in range(channels):
                ring = _ring(planes[channel], rows, columns)
                networks = predictor(self.version, f"{stage.side}-{_kind(stage.side, number)}-{channel}")
                known = [
                    self._known(stage, number, channel, black, square, finished[black], ring)
                    for black, square in enumerate(squares)
                ]
                near = np.zeros(((rows + 2) * (columns + 2), self.images), np.float32)
                inner = _inner(rows, columns)
                offsets = [y * (columns + 2) + x for y, x in layout.AROUND]
                for kind in range(stage.classes):
                    first = layout.known_rows(stage.side, channel, kind, black=False)
                    last = first + len(layout.AROUND)
                    near[:] = 0
                    for black, square in enumerate(squares):
                        if not len(square):
                            continue
                        if black:
                            self._look_around(known[1], first, near, inner[square], offsets)
                        given = known[black][: last if black else first].reshape(last if black else first, -1)
                        wave = Wave(number, channel, kind, bool(black), square)
                        chosen = code(wave, networks(kind, given))
                        symbols[channel, kind, square] = chosen
                        seen = squash(chosen * UNIT)
                        near[inner[square]] = seen
                        if last < len(known[black]):
                            known[black][last] = seen
                    if last < len(known[0]):
                        self._look_around(known[0], first, near, inner[squares[0]], offsets)
                finished = [
                    np.concatenate([
                        rows_before,
                        squash(symbols[channel][:, square] * UNIT),
                        squash(ring[:, square]),
                    ])
                    for rows_before, square in zip(finished, squares, strict=True)
                ]  # fmt: skip
            planes = _raised(stage, planes, symbols)
            found.append(symbols)
        return found[::-1]

    def _known(
        self,
        stage: layout.Stage,
        number: int,
        channel: int,
        black: int,
        square: NDArray[np.intp],
        finished: Floats,
        ring: Integers,
    ) -> Floats:
        """Rows of the networks' input that are known before the first symbol: (rows, blocks, n)."""
        known = np.zeros((layout.all_rows(stage.side, channel), len(square), self.images), np.float32)
        fine = self.indices / PER_OCTAVE + layout.fineness(1.0, self.shape[0], channel)
        known[0], known[1], known[2] = INPUT_UNIT * black, np.rint(INPUT_UNIT * fine), INPUT_UNIT * number
        known[layout.PLACES : layout.PLACES + len(finished)] = finished
        first = layout.first_rows(stage.side, channel)
        known[first - len(layout.RING) : first] = squash(ring[:, square])
        return known

    @staticmethod
    def _look_around(
        known: Floats, first: int, near: Floats, where: NDArray[np.intp], offsets: list[int]
    ) -> None:
        for place, offset in enumerate(offsets):
            known[first + place] = near[where + offset]


def _kind(side: int, number: int) -> int:
    return min(number, 1) if side == layout.SIDE else 1


@functools.cache
def _squares(rows: int, columns: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """White and black squares of a chessboard."""
    colour = (np.arange(rows)[:, None] + np.arange(columns)).ravel() % 2
    return np.flatnonzero(colour == 0), np.flatnonzero(colour == 1)


@functools.cache
def _inner(rows: int, columns: int) -> NDArray[np.intp]:
    """Where the squares of a grid are in a grid with a border of one."""
    return ((np.arange(rows)[:, None] + 1) * (columns + 2) + np.arange(columns) + 1).ravel()


def _ring(plane: Integers, rows: int, columns: int) -> Integers:
    """Differences to the means around, (8, blocks, n); outside is as at the edge."""
    grid = np.pad(plane.reshape(rows, columns, -1), ((1, 1), (1, 1), (0, 0)), mode="edge")
    parts = [grid[1 + y : 1 + y + rows, 1 + x : 1 + x + columns] for y, x in layout.RING]
    return np.stack(parts).reshape(len(parts), *plane.shape) - plane


def _raised(stage: layout.Stage, planes: Integers, symbols: Integers) -> Integers:
    """Means of the next finer stage in 1/64 steps, by integers alone: (C, blocks, n) → (C, pixels, n)."""
    channels, classes, _, images = symbols.shape
    rows, columns = stage.grid
    basis = layout.integer_basis(stage.side)
    both = np.concatenate([planes[:, None], symbols * UNIT], axis=1)
    pairs = [(0, 0), *layout.order(stage.side)]
    products = np.stack([np.outer(basis[u], basis[v]).ravel() for u, v in pairs]).astype(np.float64)
    # Integers below 2^53 in float64: exact in any order of summation.
    flat = both.transpose(0, 2, 3, 1).reshape(-1, classes + 1).astype(np.float64) @ products
    raised = np.floor(flat * 2.0**-_BASIS_BITS + 0.5).astype(np.int64)
    tiles = raised.reshape(channels, rows, columns, images, stage.side, stage.side)
    whole = tiles.transpose(0, 1, 4, 2, 5, 3).reshape(
        channels, rows * stage.side, columns * stage.side, images
    )
    result: Integers = whole[:, : stage.height, : stage.width].reshape(channels, -1, images)
    return result


def together(shape: ImageShape) -> int:
    """Images per stream at most: short streams would consist of their states."""
    size = math.prod(shape)
    return 1 << min(max((2**14 // size).bit_length(), 1) - 1, 4)


def at_once(shape: ImageShape) -> int:
    """Streams that are coded together."""
    _, height, width = shape
    blocks = -(-height // layout.SIDE) * -(-width // layout.SIDE)
    return max(_AT_ONCE // (blocks * together(shape)), 1)
