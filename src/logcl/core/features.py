"""Features of a backbone as bytes, the form in which a memory takes them: fine near zero, coarse far from it.

    feature ── / scale ── asinh ── · 127 / asinh(32) ── round ── + 128 ──▶ 0 to 255

Features up to about `scale` are rounded in steps of a thirtieth of it, larger ones in steps of 4 % of their
own size, and those beyond 32 · scale are clipped: a few features of some networks are that large.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

ZERO = 128
"""The byte of the feature 0."""
_STEPS = 127 / math.asinh(32)


def to_bytes(features: NDArray[np.floating[Any]], scale: float) -> NDArray[np.uint8]:
    """Features of any shape as bytes of the same shape."""
    steps = np.rint(np.arcsinh(np.asarray(features, np.float32) / np.float32(scale)) * _STEPS)
    found: NDArray[np.uint8] = (steps.clip(-127, 127) + ZERO).astype(np.uint8)
    return found


def from_bytes(stored: NDArray[np.uint8], scale: float) -> NDArray[np.float32]:
    """The features that bytes stand for."""
    table = np.sinh((np.arange(256) - ZERO) / _STEPS) * scale
    return table.astype(np.float32)[stored]
