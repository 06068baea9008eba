"""Integers of a pyramid, chosen by error and bits, as streams of bytes; and back to images.

coefficients / step ── integers, each with its interval ── ans.py ── one stream for a few images
stream ── integers ── · step ── inverse transforms ── restoration.py ── images
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.codecs.coding import ans
from logcl.codecs.pyramid import layout
from logcl.codecs.pyramid.context import (
    PER_OCTAVE,
    Contexts,
    Format,
    Integers,
    Wave,
    step_of,
    together,
)
from logcl.codecs.pyramid.networks import LATEST, restoration
from logcl.codecs.pyramid.predictor import REACH, Distributions
from logcl.core.threads import one_thread_per_product

WORTH = 0.12
"""Squared error that a bit is worth, in squared steps."""
_DIGIT = 6  # bits of integers that are coded without a prediction, together
_DIGITS = 2  # of an escape's distance
_FARTHEST = 2 ** (_DIGIT * _DIGITS) - 1
_ESCAPE = float(_DIGIT * _DIGITS)  # bits that an escape takes beside its own
_RESTORED = 2**18  # values of images that are restored at once: in the network they take 40 times the room
_NEAREST = (-1, 0, 1, 2)  # edges computed for all symbols: those of the expected one and its neighbours


class Integral(NamedTuple):
    """The integers of some images, which stand slot by slot as in `Contexts`."""

    means: Integers
    """Of whole images, (C, n)."""
    symbols: list[Integers]
    """(C, classes, blocks, n) of each stage, the finest first."""

    def take(self, images: NDArray[np.intp]) -> Integral:
        """Those of some images."""
        return Integral(self.means[..., images], [part[..., images] for part in self.symbols])


class _Intervals:
    """Intervals of symbols in coding order, for the entropy coder."""

    def __init__(self, coder: Contexts, absent: NDArray[np.bool_]) -> None:
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


def encode(
    images: Tensor, steps: Integers, networks: int = LATEST, restored: bool = True
) -> tuple[ans.Streams, Tensor]:
    """Images (n, C, H, W) in [0, 1] in streams of `together` images, with a step (its number) per stream.

    Also returns what they decode to, uint8.
    """
    count, *sides = images.shape
    shape = (sides[0], sides[1], sides[2])
    coder = Contexts(Format(shape, networks), steps, min(together(shape), count))
    columns = ans.columns(count, coder.together)
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
    streams, symbols = _encode(coder, means, scaled, absent, WORTH)
    return streams, _rebuilt(coder, Integral(means, symbols), restored)[columns]


def recode(
    given: Integral,
    counts: Integers,
    steps: Integers,
    new_steps: Integers,
    format_: Format,
    worth: float = 0,
) -> ans.Streams:
    """The same images with other steps or in other streams; with equal steps and `worth` 0, without loss.

    given: slot by slot, with equal room in each stream; counts: how many images each stream holds.
    """
    coder = Contexts(format_, new_steps, given.means.shape[1] // len(counts))
    finer = np.tile(step_of(steps), coder.together) / coder.steps
    scaled = [(found * finer).astype(np.float32) for found in given.symbols]
    means = np.rint(given.means * finer).astype(np.int64)
    absent = (np.arange(coder.together)[:, None] >= counts).ravel()
    return _encode(coder, means, scaled, absent, worth)[0]


def _encode(
    coder: Contexts,
    means: Integers,
    scaled: list[NDArray[np.float32]],
    absent: NDArray[np.bool_],
    worth: float,
) -> tuple[ans.Streams, list[Integers]]:
    """Choose and code the integers of coefficients in steps, (C, classes, blocks, n) of each stage."""
    intervals = _Intervals(coder, absent)
    intervals.add_digits(means + (1 << coder.mean_bits - 1), coder.mean_bits)

    def code(wave: Wave, guess: Distributions) -> Integers:
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
        result: Integers = np.where(np.tile(absent, size[0]), 0, chosen).reshape(size)
        return result

    with one_thread_per_product():
        symbols = coder.walk(np.where(absent, 0, means), code)
    return intervals.streams(), symbols


def _cheapest(values: NDArray[np.float32], guess: Distributions, worth: float) -> Integers:
    """The integer below or above each value, whichever costs less: squared error plus worth of its bits."""
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
        bits = ans.COST[end - start] + np.where(guess.escapes(at), _ESCAPE, 0)
        costs.append(np.square(values - symbol) + worth * bits)
    result: Integers = low + (costs[1] < costs[0])
    return result


def decode(
    streams: ans.Streams,
    steps: Integers,
    counts: Integers,
    format_: Format,
    name: str,
    restored: bool = True,
) -> Tensor:
    """Images uint8 (n, C, H, W) of streams that hold `counts` images each."""
    coder = Contexts(format_, steps, int(counts.max()))
    present = (np.arange(coder.together)[:, None] < counts).ravel()
    found = _rebuilt(coder, symbols(streams, steps, counts, format_, name), restored)
    return found[present][_order(counts, coder.together)]


def symbols(streams: ans.Streams, steps: Integers, counts: Integers, format_: Format, name: str) -> Integral:
    """The integers of streams that hold `counts` images each, with room for as many as the fullest holds."""
    coder = Contexts(format_, steps, int(counts.max()))
    absent = (np.arange(coder.together)[:, None] >= counts).ravel()
    reader = ans.Decoder(streams)

    def digits(bits: Integers) -> Integers:
        """What `add_digits` was given: (w, n)."""
        found = np.zeros(bits.shape, np.int64)
        for shift in range(0, int(bits.max()), _DIGIT):
            width = np.where(absent, 0, np.clip(bits - shift, 0, _DIGIT)).reshape(-1, coder.streams)
            part = np.zeros(width.shape, np.int64)
            for place in np.flatnonzero(width.any(axis=1)):  # digits of no bits take nothing
                some = width[place]
                part[place] = reader.peek() >> ans.BITS - some
                reader.advance(part[place] << ans.BITS - some, ans.TOTAL >> some)
            found |= part.reshape(bits.shape) << shift
        return found

    bits = np.broadcast_to(coder.mean_bits, (coder.shape[0], coder.images))
    means = np.where(absent, 0, digits(bits) - (1 << bits - 1))

    def code(wave: Wave, guess: Distributions) -> Integers:
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


@torch.no_grad()
def _rebuilt(coder: Contexts, given: Integral, restored: bool) -> Tensor:
    """Images (n, C, H, W), uint8."""
    channels = coder.shape[0]
    plane = torch.from_numpy((given.means * coder.steps).astype(np.float32)).T[:, :, None, None]
    for stage, found in reversed(list(zip(layout.stages(coder.shape), given.symbols, strict=True))):
        values = torch.from_numpy((found * coder.steps).astype(np.float32))
        values = values.permute(3, 0, 1, 2).reshape(coder.images, channels, stage.classes, *stage.grid)
        plane = layout.raise_stage(stage, plane, values)
    images = layout.to_pixels(plane.clone())
    if restored:
        fineness = torch.from_numpy(coder.indices / PER_OCTAVE).float()
        many = max(_RESTORED // math.prod(coder.shape), 1)
        parts = zip(images.split(many), fineness.split(many), strict=True)
        images = torch.cat([restoration(coder.version, channels)(*part).clamp_(0, 1) for part in parts])
    return images.mul_(255).round_().to(torch.uint8)


def _order(counts: Integers, group: int) -> NDArray[np.intp]:
    """Places of images, stream by stream, among those that stand slot by slot without gaps."""
    held = np.arange(group)[:, None] < counts
    numbers = np.cumsum(held.ravel()).reshape(held.shape) - 1
    result: NDArray[np.intp] = numbers.T[held.T]
    return result
