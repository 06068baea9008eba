"""Encoding images so that all together meet a target: mean bytes, or mean squared error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logcl.codecs.base import RateSettings

TRIED, TRIALS = 24, 12
"""Images on which the first quality is chosen, and qualities tried at most."""
_NOTICED = 0.15  # dB
_NEAR = 0.1  # dB from the target at which a quality is good enough to begin with
_CORRECTIONS, _FEWEST = 5, 32  # blocks at least, unless they would have fewer images than this
_PATIENCE = 4  # trials after which the interval of qualities is halved
_TINY = 32  # bytes of a code below which a lower quality saves nothing


class Encoded(NamedTuple):
    """Images encoded at one quality."""

    codes: Any
    """Whatever the codec makes of them."""
    mean_bytes: float
    mean_error: float
    """Mean squared error, pixels in [0, 1]; only needed if the target is one."""


class Block(NamedTuple):
    """Some of the images, and what became of them."""

    rows: NDArray[np.intp]
    codes: Any
    quality: int


@dataclass(frozen=True)
class Scale:
    """The qualities of a codec."""

    lowest: int
    highest: int
    error_slope: float
    """dB of error per step of quality, typically."""
    bytes_slope: float
    """dB of bytes, 10 · log10, per step of quality."""
    usual: int
    """Where to begin."""
    dear: int
    """Below this one, errors that would save next to nothing are not made."""


class RateControl:
    """Encodes images so that all together meet the target: it corrects the quality as it goes."""

    def __init__(
        self,
        encode: Callable[[NDArray[np.uint8], int], Encoded],
        scale: Scale,
        settings: RateSettings,
        block: int = 32,
        tried: int = TRIED,
    ) -> None:
        """encode: images at a quality; block: images after which it is corrected; tried: see `TRIED`."""
        self.encode_at, self.scale, self.block, self.tried = encode, scale, block, tried
        self.by_error = settings.psnr is not None
        self.target = -(settings.psnr or 0) if self.by_error else _decibel(settings.bytes_per_sample or 1)
        self.slope = scale.error_slope if self.by_error else scale.bytes_slope
        self.lowest = scale.dear if self.by_error else scale.lowest

    def encode(self, x: NDArray[np.uint8], start: int | None) -> tuple[list[Block], int]:
        """All images (n, C, H, W) in blocks, and their mean quality."""
        some = x[:: -(-len(x) // self.tried)]
        trials: dict[int, Encoded] = {}
        quality = self.scale.usual if start is None else start
        self.lowest = min(self.lowest, quality)
        while quality not in trials and len(trials) < TRIALS:
            trials[quality] = self.encode_at(some, quality)
            if abs(self._miss(trials[quality])) < _NEAR:
                break
            quality = self._next(trials)
        best = min(trials, key=lambda tried: self._regret(trials[tried]))
        if len(some) == len(x):
            return [Block(np.arange(len(x)), trials[best].codes, best)], best
        blocks = []
        spent, asked, weight, done = 0.0, 10 ** (self.target / 10), 0, 0
        quality = best
        # In random order: tasks are often sorted by class, and then the first say little about the others.
        order = np.random.default_rng(len(x)).permutation(len(x))
        block = min(self.block, max(-(-len(x) // _CORRECTIONS), _FEWEST))
        for rows in np.array_split(order, -(-len(x) // block)):
            encoded = self.encode_at(x[rows], quality)
            blocks.append(Block(rows, encoded.codes, quality))
            spent += len(rows) * (encoded.mean_error if self.by_error else encoded.mean_bytes)
            weight += len(rows) * quality
            done += len(rows)
            if left := len(x) - done:
                # What the other images may spend on average, if all of them are like those so far.
                rest = min(max((asked * len(x) - spent) / left, asked / 1.3), asked * 1.3)
                change = min(max((_decibel(rest) - _decibel(spent / done)) / self.slope, -10), 10)
                quality = min(max(round(weight / done + change), self.lowest), self.scale.highest)
        return blocks, round(weight / len(x))

    def _miss(self, trial: Encoded) -> float:
        """dB by which a trial is poorer, or dearer, than asked for."""
        return _decibel(trial.mean_error if self.by_error else trial.mean_bytes) - self.target

    def _regret(self, trial: Encoded) -> float:
        """How bad a miss is: worst where it is noticeably poorer, or dearer, than asked for."""
        miss = self._miss(trial)
        return abs(miss) + 10 * max(miss - _NOTICED, 0)

    def _next(self, trials: Mapping[int, Encoded]) -> int:
        """The quality to try next: between the nearest ones on both sides of the target, if there are."""
        best = min(trials, key=lambda tried: abs(self._miss(trials[tried])))
        above = self._miss(trials[best]) > 0
        others = [tried for tried in trials if (self._miss(trials[tried]) > 0) != above]
        near = min(others, key=lambda tried: abs(tried - best), default=None)
        if near is None:  # the slope is only typical: not too far at once
            wanted = best + min(max(-self._miss(trials[best]) / self.slope, -40), 40)
        else:
            rise = (self._miss(trials[near]) - self._miss(trials[best])) / (near - best)
            self.slope = rise if rise / self.slope > 0 else self.slope
            wanted = best - self._miss(trials[best]) / self.slope
            if len(trials) > _PATIENCE:
                wanted = (near + best) / 2
            wanted = min(max(wanted, min(near, best) + 1), max(near, best) - 1)
        dear = self.scale.dear
        if wanted < dear and dear in trials and trials[dear].mean_bytes > _TINY:
            self.lowest = self.scale.lowest
        return min(max(round(wanted), self.lowest), self.scale.highest)


def runs(groups: Sequence[int], first: int) -> list[tuple[int, int]]:
    """Where the groups of samples from the first one on begin and end."""
    ends = np.cumsum(groups).tolist()
    return [(max(end - size, first), end) for end, size in zip(ends, groups, strict=True) if end > first]


def _decibel(value: float) -> float:
    return 10 * math.log10(max(value, 1e-6))
