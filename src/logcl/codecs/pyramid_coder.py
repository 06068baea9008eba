"""Codes of a pyramid of cosine transforms: its integers, coded in the context of those that are coded already.

coefficients / step ── choose integers by error and bits ── predictor.py ── ans.py ── one stream for a few images
stream ── integers ── means of their intervals · step ── inverse transforms ── images
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from importlib.resources import files
from io import BytesIO
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.codecs import ans
from logcl.codecs import pyramid_layout as layout
from logcl.codecs.context import one_thread_per_product
from logcl.codecs.predictor import INPUT_UNIT, REACH, UNIT, Distributions, Floats, Networks, squash
from logcl.core.settings import ImageShape

STEPS = 256
"""Steps are 2^(-j / 32) for j from 0 to 255."""
WORTH = 0.1
"""Squared error that a bit is worth, in squared steps."""
PER_OCTAVE = 32
_AT_ONCE = 2**15  # blocks of the finest stage that are coded together
_DIGIT = 6  # bits of integers that are coded without a prediction, together
_DIGITS = 2  # of an escape's distance
_FARTHEST = 2 ** (_DIGIT * _DIGITS) - 1
_BITS = (ans.BITS - np.log2(np.maximum(np.arange(ans.TOTAL + 1), 1))).astype(np.float32)
_ESCAPE = float(_DIGIT * _DIGITS)  # bits that an escape takes beside its own
_BASIS_BITS = 24  # of the product of two integer basis functions

Integers = NDArray[np.int64]


def step_of(index: Integers) -> NDArray[np.float64]:
    """Steps by their numbers, pixels in [0, 1]."""
    return np.asarray(2.0 ** (-np.asarray(index) / PER_OCTAVE))


@functools.cache
def _networks() -> dict[str, Networks]:
    content = files("logcl.codecs").joinpath("pyramid-1.npz").read_bytes()
    with np.load(BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    return {name: Networks.of(arrays, name) for name in {key.split(".")[0] for key in arrays}}


class _Wave(NamedTuple):
    """Symbols that are coded together: one coefficient of all blocks of one colour."""

    stage: int
    channel: int
    number: int
    black: bool
    where: NDArray[np.intp]
    """Positions of the blocks in the grid."""


class _Coder:
    """What encoding and decoding have in common: the order of symbols, and what is known of them.

    Arrays have images in the last axis, slot by slot: the first image of every stream, then the second, ...
    """

    def __init__(self, shape: ImageShape, steps: Integers, together: int) -> None:
        """steps: number of each stream's step, (streams,)."""
        self.shape, self.together, self.streams = shape, together, len(steps)
        self.indices = np.tile(steps, together)
        self.steps = step_of(self.indices)
        self.images = len(self.indices)

    @property
    def mean_bits(self) -> Integers:
        """Bits of the mean of a whole image, which is coded without a prediction, (n,)."""
        largest = 0.5 * math.sqrt(math.prod(self.shape)) / self.steps
        return np.ceil(np.log2(2 * largest + 3)).astype(np.int64)

    def walk(self, means: Integers, code: Callable[[_Wave, Distributions], Integers]) -> list[Integers]:
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
                networks = _networks()[f"{stage.side}-{_kind(stage.side, number)}-{channel}"]
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
                        wave = _Wave(number, channel, kind, bool(black), square)
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
        """Rows of the networks' input, as far as they are known before the first symbol: (rows, blocks, n)."""
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
    channels, classes, blocks, images = symbols.shape
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
    return whole[:, : stage.height, : stage.width].reshape(channels, -1, images)


class Integral(NamedTuple):
    """The integers of some images, which stand slot by slot as in `_Coder`."""

    means: Integers
    """Of whole images, (C, n)."""
    symbols: list[Integers]
    """(C, classes, blocks, n) of each stage, the finest first."""


def together(shape: ImageShape) -> int:
    """Images per stream at most: short streams would consist of their states."""
    size = math.prod(shape)
    return 1 << min(max((2**13 // size).bit_length(), 1) - 1, 4)


def at_once(shape: ImageShape) -> int:
    """Streams that are coded together."""
    _, height, width = shape
    blocks = -(-height // layout.SIDE) * -(-width // layout.SIDE)
    return max(_AT_ONCE // (blocks * together(shape)), 1)


class _Intervals:
    """Intervals of symbols in coding order, for the entropy coder."""

    def __init__(self, coder: _Coder, absent: NDArray[np.bool_]) -> None:
        self.coder, self.absent = coder, absent
        self.starts: list[NDArray[np.uint16]] = []
        self.frequencies: list[NDArray[np.uint16]] = []

    def add(self, starts: Integers, frequencies: Integers) -> None:
        """(w, n): all slots of a position come before the next position."""
        starts = np.where(self.absent, 0, starts)
        frequencies = np.where(self.absent, ans.TOTAL, frequencies)
        self.starts.append(starts.astype(np.uint16).reshape(-1, self.coder.streams))
        self.frequencies.append(frequencies.astype(np.uint16).reshape(-1, self.coder.streams))

    def add_digits(self, values: Integers, bits: Integers) -> None:
        """Integers (w, n) from 0 on, without a prediction; `bits`: how many they have, broadcast to them."""
        for shift in range(0, int(bits.max()), _DIGIT):
            width = np.clip(bits - shift, 0, _DIGIT)
            starts = (values >> shift & (1 << width) - 1) * (ans.TOTAL >> width)
            self.add(starts, np.broadcast_to(ans.TOTAL >> width, values.shape))

    def streams(self) -> ans.Streams:
        return ans.encode(np.concatenate(self.starts), np.concatenate(self.frequencies))


def encode(images: Tensor, steps: Integers, worth: float = WORTH) -> tuple[ans.Streams, Tensor]:
    """Images (n, C, H, W) in [0, 1] in streams of `together` images, with a step (its number) per stream.

    Also returns what they decode to, uint8.
    """
    count, *sides = images.shape
    shape: ImageShape = (sides[0], sides[1], sides[2])
    coder = _Coder(shape, steps, together(shape))
    columns = _columns(count, coder.together)
    placed = torch.zeros(coder.images, *shape)
    placed[columns] = images
    exact, last = layout.analyse(placed)
    scaled = [
        (found.permute(1, 2, 3, 4, 0).numpy() / coder.steps).astype(np.float32)
        .reshape(shape[0], found.shape[2], -1, coder.images) for found in exact
    ]  # fmt: skip
    means = np.rint(last.numpy().T / coder.steps).astype(np.int64)
    absent = np.ones(coder.images, np.bool_)
    absent[columns] = False
    streams, symbols = _encode(coder, means, scaled, absent, worth)
    return streams, _rebuilt(coder, Integral(means, symbols))[columns]


def recode(
    given: Integral,
    counts: Integers,
    steps: Integers,
    new_steps: Integers,
    shape: ImageShape,
    worth: float = 0,
) -> ans.Streams:
    """The same images with other steps or in other streams; with the same steps and nothing worth, losslessly.

    given: slot by slot, with room for `together` images per stream; counts: how many each stream holds.
    """
    coder = _Coder(shape, new_steps, together(shape))
    finer = np.tile(step_of(steps), coder.together) / coder.steps
    scaled = [(found * finer).astype(np.float32) for found in given.symbols]
    means = np.rint(given.means * finer).astype(np.int64)
    absent = (np.arange(coder.together)[:, None] >= counts).ravel()
    return _encode(coder, means, scaled, absent, worth)[0]


def _encode(
    coder: _Coder, means: Integers, scaled: list[NDArray[np.float32]], absent: NDArray[np.bool_], worth: float
) -> tuple[ans.Streams, list[Integers]]:
    """Choose and code the integers of coefficients in steps, (C, classes, blocks, n) of each stage."""
    intervals = _Intervals(coder, absent)
    intervals.add_digits(means + (1 << coder.mean_bits - 1), coder.mean_bits)

    def code(wave: _Wave, guess: Distributions) -> Integers:
        values = scaled[wave.stage][wave.channel, wave.number, wave.where]
        size = values.shape
        chosen = _cheapest(values.ravel(), guess, worth)
        expected = guess.expected
        number = np.clip(chosen - expected + REACH, 0, 2 * REACH)
        starts = guess.cumulative(number, expected)
        sizes = guess.cumulative(number + 1, expected) - starts
        intervals.add(starts.reshape(size), sizes.reshape(size))
        escaped = guess.escapes(number) & ~np.tile(absent, size[0])
        if escaped.any():
            distance = np.where(escaped, np.abs(chosen - expected) - REACH, 0)
            intervals.add_digits(distance.reshape(size), _DIGIT * _DIGITS * escaped.reshape(size))
        return np.where(np.tile(absent, size[0]), 0, chosen).reshape(size)

    with one_thread_per_product():
        symbols = coder.walk(np.where(absent, 0, means), code)
    return intervals.streams(), symbols


def _cheapest(values: NDArray[np.float32], guess: Distributions, worth: float) -> Integers:
    """The integer below or above each value, whichever costs less: squared error plus what its bits are worth."""
    expected = guess.expected
    low = np.floor(values).astype(np.int64)
    np.clip(low, expected - REACH - _FARTHEST, expected + REACH + _FARTHEST - 1, out=low)
    number = low - expected + REACH
    inside = np.clip(number, 0, 2 * REACH)
    above = np.clip(number + 1, 0, 2 * REACH)
    edges = [guess.cumulative(at, expected) for at in (inside, inside + 1, above + 1)]
    start_above = np.where(above > inside, edges[1], edges[0])
    costs = []
    for at, start, end, symbol in (
        (inside, edges[0], edges[1], low),
        (above, start_above, edges[2], low + 1),
    ):
        bits = _BITS[end - start] + np.where(guess.escapes(at), _ESCAPE, 0)
        costs.append(np.square(values - symbol) + worth * bits)
    return low + (costs[1] < costs[0])


def decode(streams: ans.Streams, steps: Integers, counts: Integers, shape: ImageShape, name: str) -> Tensor:
    """Images uint8 (n, C, H, W) of streams that hold `counts` images each."""
    coder = _Coder(shape, steps, together(shape))
    present = (np.arange(coder.together)[:, None] < counts).ravel()
    found = _rebuilt(coder, symbols(streams, steps, counts, shape, name))
    return found[present][_order(counts, coder.together)]


def symbols(
    streams: ans.Streams, steps: Integers, counts: Integers, shape: ImageShape, name: str
) -> Integral:
    """The integers of streams that hold `counts` images each."""
    coder = _Coder(shape, steps, together(shape))
    absent = (np.arange(coder.together)[:, None] >= counts).ravel()
    reader = ans.Decoder(streams)

    def digits(bits: Integers) -> Integers:
        """What `add_digits` was given: (w, n)."""
        found = np.zeros(bits.shape, np.int64)
        for shift in range(0, int(bits.max()), _DIGIT):
            width = np.where(absent, 0, np.clip(bits - shift, 0, _DIGIT)).reshape(-1, coder.streams)
            part = np.empty(width.shape, np.int64)
            for row, some in zip(part, width, strict=True):
                row[:] = reader.peek() >> ans.BITS - some
                reader.advance(row << ans.BITS - some, ans.TOTAL >> some)
            found |= part.reshape(bits.shape) << shift
        return found

    bits = np.broadcast_to(coder.mean_bits, (shape[0], coder.images))
    means = np.where(absent, 0, digits(bits) - (1 << bits - 1))

    def code(wave: _Wave, guess: Distributions) -> Integers:
        size = (len(wave.where), coder.images)
        expected = guess.expected
        number = _read(reader, guess, expected, np.tile(absent, size[0]), coder.streams)
        symbols = number - REACH + expected
        escaped = guess.escapes(number) & ~np.tile(absent, size[0])
        if escaped.any():
            distance = digits(_DIGIT * _DIGITS * escaped.reshape(size)).ravel()
            symbols += np.where(escaped, np.sign(number - REACH) * distance, 0)
        symbols[np.tile(absent, size[0])] = 0
        return symbols.reshape(size)

    with one_thread_per_product():
        found = coder.walk(means, code)
    if not reader.finished:
        raise ans.damaged(name, "codes do not decode")
    return Integral(means, found)


_NEAREST = (
    -1,
    0,
    1,
    2,
)  # edges that are computed for all symbols: those of the expected one and its neighbours


def _read(
    reader: ans.Decoder, guess: Distributions, expected: Integers, absent: NDArray[np.bool_], streams: int
) -> Integers:
    """The next numbers, (w · n,)."""
    edges = np.stack([guess.cumulative(np.int64(REACH + near), expected) for near in _NEAREST])
    edges = edges.reshape(len(_NEAREST), -1, streams)
    skipped = absent.reshape(-1, streams)
    any_skipped = bool(skipped.any())
    numbers = np.empty(skipped.shape, np.int64)
    every = np.arange(streams)
    for place, skip in enumerate(skipped):
        slot = reader.peek()
        at = edges[:, place]
        passed = (slot >= at).sum(axis=0)  # 0 and 4: farther away
        inside = np.clip(passed, 1, 3)
        starts, ends = at[inside - 1, every], at[inside, every]
        number = passed + (REACH - 2)
        far = np.flatnonzero((passed == 0) | (passed == len(_NEAREST)))
        if any_skipped:
            far = far[~skip[far]]
        if len(far):
            rows = place * streams + far
            some, near = guess.take(rows), expected[rows]
            found = _search(some, near, slot[far])
            number[far] = found
            starts[far], ends[far] = some.cumulative(found, near), some.cumulative(found + 1, near)
        sizes = ends - starts
        if any_skipped:
            starts, sizes = np.where(skip, 0, starts), np.where(skip, ans.TOTAL, sizes)
        numbers[place] = number
        reader.advance(starts, sizes)
    return numbers.ravel()


def _search(guess: Distributions, expected: Integers, slot: Integers) -> Integers:
    """The numbers whose intervals hold the slots."""
    low, high = np.zeros(len(slot), np.int64), np.full(len(slot), 2 * REACH, np.int64)
    while (low < high).any():
        middle = (low + high + 1) // 2
        right = guess.cumulative(middle, expected) <= slot
        low, high = np.where(right, middle, low), np.where(right, high, middle - 1)
    return low


def _rebuilt(coder: _Coder, given: Integral) -> Tensor:
    """Images (n, C, H, W), uint8."""
    channels = coder.shape[0]
    plane = torch.from_numpy((given.means * coder.steps).astype(np.float32)).T[:, :, None, None]
    for stage, found in reversed(list(zip(layout.stages(coder.shape), given.symbols, strict=True))):
        values = torch.from_numpy((found * coder.steps).astype(np.float32))
        values = values.permute(3, 0, 1, 2).reshape(coder.images, channels, stage.classes, *stage.grid)
        plane = layout.raise_stage(stage, plane, values)
    return layout.to_pixels(plane.clone()).mul_(255).round_().to(torch.uint8)


def _columns(count: int, group: int) -> NDArray[np.intp]:
    """Where images stand: the first of every stream, then the second of every stream, and so on."""
    streams = -(-count // group)
    image = np.arange(count)
    return image % group * streams + image // group


def _order(counts: Integers, group: int) -> NDArray[np.intp]:
    """Among images that stand slot by slot without gaps: those of the first stream, then of the second, ..."""
    held = np.arange(group)[:, None] < counts
    numbers = np.cumsum(held.ravel()).reshape(held.shape) - 1
    return numbers.T[held.T]
