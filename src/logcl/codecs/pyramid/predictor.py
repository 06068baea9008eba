"""What the next integer probably is: small networks of integers, and frequencies for the entropy coder.

    rows of known integers ── 8-bit layer ── 8-bit layer ── 8-bit layer ── two logistic distributions, mixed
                                                                        └─ cumulative frequencies ── ans.py

Networks were trained with floats and rounded. Products and sums stay below 2^24, which float32 holds exactly,
in any order of summation; all else is integers and tables: every machine finds the same frequencies.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logcl.codecs.coding import ans

Floats = NDArray[np.float32]
"""Integers, unless it says otherwise."""
Integers = NDArray[np.integer[Any]]

UNIT = 64
"""Integers per unit of activations and outputs."""
INPUT_UNIT = 16
"""Integers per unit of the first layer's inputs."""
LARGEST_ACTIVATION = 1023
SHARPEST, FLATTEST = -3, 6
"""Bounds of a distribution's log scale."""
OUTPUTS = 5
"""Log odds of the first distribution, two means, two log scales."""
REACH = 12
"""Symbols this far from the expected one have their own frequency; others are an escape and its distance."""
_ESCAPE_BITS = 6  # of a distance, coded together
_LARGEST_DISTANCE = 2 ** (2 * _ESCAPE_BITS)
_SYMBOLS = 2 * REACH + 1
_FINE = 16  # bits after the point of a sharpness
_LOGISTIC_FINE, _LOGISTIC_SPAN = (
    64,
    16,
)  # entries per unit of the logistic function's table, and its half width
_SQUASHED = 2**14  # arguments that `squash` tells apart


@functools.cache
def _squash_table() -> Floats:
    steps = np.arange(_SQUASHED) / UNIT
    positive = np.rint(INPUT_UNIT * np.log2(1 + steps))
    return np.concatenate([-positive[:0:-1], positive]).astype(np.float32)


def squash(values: Integers) -> Floats:
    """Integers in units of 1/64, as inputs: sign · 16 · log2(1 + |value|)."""
    most = _SQUASHED - 1
    found: Floats = _squash_table()[np.clip(values, -most, most) + most]
    return found


@functools.cache
def _logistic_table() -> NDArray[np.int64]:
    """The logistic function, 16 bits."""
    half = _LOGISTIC_SPAN * _LOGISTIC_FINE
    at = (np.arange(-half, half) + 0.5) / _LOGISTIC_FINE
    return np.rint(2.0**16 / (1 + np.exp(-at))).astype(np.int64)


@functools.cache
def _sharpness_table() -> NDArray[np.int64]:
    log_scales = np.arange(SHARPEST * UNIT, FLATTEST * UNIT + 1) / UNIT
    return np.rint(2.0**_FINE * np.exp(-log_scales)).astype(np.int64)


class Distributions(NamedTuple):
    """A mixture of two logistic distributions for each of n symbols; all are integers (n,)."""

    share: NDArray[np.int64]
    """Of the first one, of 2^8."""
    means: tuple[NDArray[np.int64], NDArray[np.int64]]
    """In units of 1/64."""
    sharpness: tuple[NDArray[np.int64], NDArray[np.int64]]

    @staticmethod
    def of(outputs: Floats) -> Distributions:
        """From what a network says, (5, n)."""
        odds, first, second, *log_scales = outputs.astype(np.int64)
        half = _LOGISTIC_SPAN * _LOGISTIC_FINE
        share = _logistic_table()[np.clip(odds, -half, half - 1) + half] >> 8
        table = _sharpness_table()
        lowest = SHARPEST * UNIT
        one, two = (table[np.clip(scale, lowest, FLATTEST * UNIT) - lowest] for scale in log_scales)
        return Distributions(share, (first, second), (one, two))

    def take(self, rows: Integers | NDArray[np.bool_]) -> Distributions:
        """Those of some symbols."""
        return Distributions(
            self.share[rows],
            (self.means[0][rows], self.means[1][rows]),
            (self.sharpness[0][rows], self.sharpness[1][rows]),
        )

    @property
    def expected(self) -> NDArray[np.int64]:
        """The integers nearest to the means."""
        first, second = self.means
        both = self.share * first + (256 - self.share) * second
        return (both + (1 << 13)) >> 14

    def cumulative(self, number: Integers, expected: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the intervals of symbols begin, of `ans.TOTAL`: (n,) → (n,).

        number: 0 for the symbol `REACH` below the expected one, and so on; up to `2 · REACH + 1`, the end.
        """
        edge = (number + (expected - REACH)) * UNIT - UNIT // 2
        half = _LOGISTIC_SPAN * _LOGISTIC_FINE
        table = _logistic_table()
        below = []
        for mean, sharpness in zip(self.means, self.sharpness, strict=True):
            at = (edge - mean) * sharpness >> _FINE
            below.append(table[np.clip(at, -half, half - 1) + half])
        mixed = self.share * below[0] + (256 - self.share) * below[1]
        inner = (mixed * (ans.TOTAL - _SYMBOLS) >> 24) + number
        return np.where(number <= 0, 0, np.where(number >= _SYMBOLS, ans.TOTAL, inner))

    def escapes(self, number: Integers) -> NDArray[np.bool_]:
        """Which numbers are escapes."""
        return (number <= 0) | (number >= _SYMBOLS - 1)


@dataclass(frozen=True)
class Networks:
    """One network for each of several kinds of symbols, three layers of integers each."""

    weights: Sequence[Floats]
    """Per layer: (kinds, outputs, inputs)."""
    biases: Sequence[Floats]
    """Per layer: (kinds, outputs, 1)."""
    scales: Sequence[Floats]
    """Per layer, negative powers of two that sums are multiplied by: (kinds, outputs, 1)."""

    @staticmethod
    def of(arrays: Mapping[str, NDArray[Any]], name: str) -> Networks:
        """Those of this name in a file that `tools/train_pyramid.py` wrote."""
        weights, biases, scales = [], [], []
        unit = INPUT_UNIT
        for layer in range(3):
            stored = arrays[f"{name}.weights.{layer}"].astype(np.float32)
            weights.append(np.ascontiguousarray(stored.transpose(0, 2, 1)))
            biases.append(arrays[f"{name}.biases.{layer}"].astype(np.float32)[:, :, None])
            shifts = arrays[f"{name}.shifts.{layer}"].astype(np.float32)
            scales.append((UNIT / unit * 2**-shifts).astype(np.float32)[:, :, None])
            unit = UNIT
        return Networks(weights, biases, scales)

    def __call__(self, kind: int, known: Floats) -> Distributions:
        """What is probable where these rows are known, (rows, n); further rows are unknown."""
        values = known
        for layer, (weights, biases, scales) in enumerate(
            zip(self.weights, self.biases, self.scales, strict=True)
        ):
            values = np.matmul(weights[kind][:, : len(values)], values)
            values += biases[kind]
            values *= scales[kind]
            np.floor(values, out=values)
            if layer < len(self.weights) - 1:
                np.clip(values, 0, LARGEST_ACTIVATION, out=values)
        return Distributions.of(values)
