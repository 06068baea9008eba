"""Encoding images as files so that all together meet a target: mean bytes, or mean squared error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from logcl.codecs.base import RateSettings
from logcl.codecs.containers import HIGHEST, LOWEST, Container
from logcl.codecs.file_codes import FileCodes
from logcl.core.images import squared_errors

TRIED, TRIALS = 24, 8
"""Images on which the first quality is chosen, and qualities tried at most."""
_NEAR = 0.1  # dB from the target at which a quality is good enough to begin with
_TINY = 32  # bytes of a code below which a lower quality saves nothing
_BLOCK = 32  # images after which the quality is corrected
_ERROR_SLOPE, _BYTES_SLOPE = -0.22, 0.11  # of 10 · log10 of error and of bytes, per step of quality: typical

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Trial(NamedTuple):
    entries: list[bytes]
    measure: float
    """10 · log10 of what the target is about: mean squared error, or mean bytes."""

    @property
    def mean_bytes(self) -> float:
        """Of the codes."""
        return sum(map(len, self.entries)) / len(self.entries)


class RateControl:
    """Encodes images so that all together meet the target: it corrects the quality as it goes."""

    def __init__(
        self,
        container: Container,
        settings: RateSettings,
        speed: int,
        shells: list[bytes],
        made: Callable[[int], None],
    ) -> None:
        """shells: those known, new ones are added; made: called with the number of encoded images."""
        self.container, self.speed, self.shells, self.made = container, speed, shells, made
        self.by_error = settings.psnr is not None
        self.target = -(settings.psnr or 0) if self.by_error else _decibel(settings.bytes_per_sample or 1)
        self.slope = _ERROR_SLOPE if self.by_error else _BYTES_SLOPE
        self.lowest = 0 if self.by_error else LOWEST  # not dimmed for an error that would save nothing

    def encode(self, x: NDArray[np.uint8], start: int | None) -> tuple[list[bytes], int]:
        """The codes of images (n, C, H, W), and their mean quality."""
        some = x[:: -(-len(x) // TRIED)]
        trials: dict[int, _Trial] = {}
        quality = 45 if start is None else start
        self.lowest = min(self.lowest, quality)
        while quality not in trials and len(trials) < TRIALS:
            trials[quality] = self._trial(some, quality)
            if abs(trials[quality].measure - self.target) < _NEAR:
                break
            quality = self._next(trials)
        best = min(trials, key=lambda tried: self._miss(trials[tried]))
        if len(some) == len(x):
            return trials[best].entries, best
        entries = [b""] * len(x)
        spent, asked, weight, done = 0.0, 10 ** (self.target / 10), 0, 0
        quality = best
        # In random order: tasks are often sorted by class, and then the first say little about the others.
        order = np.random.default_rng(len(x)).permutation(len(x))
        for rows in np.array_split(order, -(-len(x) // _BLOCK)):
            block = self._trial(x[rows], quality)
            for row, entry in zip(rows, block.entries, strict=True):
                entries[row] = entry
            spent += len(rows) * 10 ** (block.measure / 10)
            weight += len(rows) * quality
            done += len(rows)
            if left := len(x) - done:
                # What the other images may spend on average, if all of them are like those so far.
                rest = min(max((asked * len(x) - spent) / left, asked / 1.3), asked * 1.3)
                change = min(max((_decibel(rest) - _decibel(spent / done)) / self.slope, -10), 10)
                quality = min(max(round(weight / done + change), self.lowest), HIGHEST)
        return entries, round(weight / len(x))

    def _miss(self, trial: _Trial) -> float:
        """How far a trial is from the target: poorer, or dearer, than asked for is four times as bad."""
        miss = trial.measure - self.target
        return 4 * miss if miss > 0 else -miss

    def _next(self, trials: Mapping[int, _Trial]) -> int:
        """The quality to try next: between the nearest ones on both sides of the target, if there are."""
        best = min(trials, key=lambda tried: abs(trials[tried].measure - self.target))
        above = trials[best].measure > self.target
        others = [tried for tried in trials if (trials[tried].measure > self.target) != above]
        near = min(others, key=lambda tried: abs(tried - best), default=None)
        if near is None:  # the slope is only typical: not too far at once
            wanted = best + min(max((self.target - trials[best].measure) / self.slope, -40), 40)
        else:
            rise = (trials[near].measure - trials[best].measure) / (near - best)
            self.slope = rise if rise / self.slope > 0 else self.slope
            wanted = best + (self.target - trials[best].measure) / self.slope
            wanted = min(max(wanted, min(near, best) + 1), max(near, best) - 1)
        if wanted < 0 and 0 in trials and trials[0].mean_bytes > _TINY:
            self.lowest = LOWEST
        return min(max(round(wanted), self.lowest), HIGHEST)

    def _trial(self, x: NDArray[np.uint8], quality: int) -> _Trial:
        grey = x.shape[1] == 1

        def one(image: NDArray[np.uint8]) -> tuple[bytes, bytes, float]:
            shell, payload = self.container.encode(image, quality, self.speed)
            error = 0.0
            if self.by_error:
                decoded = self.container.decode(shell, payload, grey)
                error = float(squared_errors(image[None], decoded[None])[0])
            return shell, payload, error

        found = parallel(one, list(x))
        self.made(len(x))
        self.shells += [shell for shell in dict.fromkeys(s for s, _, _ in found) if shell not in self.shells]
        entries = [bytes([self.shells.index(shell)]) + payload for shell, payload, _ in found]
        if self.by_error:
            return _Trial(entries, _decibel(sum(error for _, _, error in found) / len(x)))
        return _Trial(entries, _decibel(FileCodes.of(entries).nbytes / len(x)))


def _decibel(value: float) -> float:
    return 10 * math.log10(max(value, 1e-6))


def parallel(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Results in order; Pillow releases the interpreter's lock, so threads run side by side."""
    threads = min(torch.get_num_threads(), len(items))
    if threads <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))
