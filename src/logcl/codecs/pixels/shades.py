"""Few shades of grey for many: which ones, and how good images are with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 25  # of Lloyd's algorithm


def lloyd(x: NDArray[np.uint8], fixed: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` shades beside fixed ones that minimise the squared error (Lloyd 1982), from a histogram."""
    histogram = np.bincount(x.ravel(), minlength=256).astype(np.float64)
    levels = np.arange(256.0)
    missed = np.abs(levels[:, None] - np.array(fixed)).min(axis=1) if len(fixed) else np.ones(256)
    spread = np.cumsum(np.sqrt(histogram) * missed)
    free = np.interp((np.arange(count) + 0.5) / max(count, 1) * spread[-1], spread, levels)
    for _ in range(_ROUNDS):
        points = np.concatenate([fixed, free])
        nearest = np.abs(levels[:, None] - points).argmin(axis=1)
        for number in range(count):
            mine = histogram * (nearest == len(fixed) + number)
            if mine.sum():
                free[number] = (mine * levels).sum() / mine.sum()
    found = {int(shade) for shade in (*fixed, *np.rint(free))}
    for shade in (0, 255):  # a codec has at least two
        if len(found) < 2:
            found.add(shade)
    return tuple(sorted(found))


def quality_of(x: NDArray[np.uint8], shades: NDArray[Any]) -> float:
    """PSNR with the nearest shades, in dB."""
    histogram = np.bincount(x.ravel(), minlength=256)
    error = np.square(np.abs(np.arange(256)[:, None] - shades).min(axis=1) / 255)
    return -10 * math.log10(max(float((histogram * error).sum() / max(histogram.sum(), 1)), 1e-6))
