"""Rounding the bytes of features to symbols."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from logcl.codecs.quantised import ROUNDING
from logcl.core.features import ZERO

STEP = 20.0
"""The usual step: a hundred bytes per sample for 1,280 features, and one point of accuracy, about."""


def rounded(x: NDArray[np.uint8], step: float) -> NDArray[np.int16]:
    """Bytes (n, ...) in whole steps from zero, (n, values); those near zero become zero."""
    values = x.reshape(len(x), -1).astype(np.float32) - ZERO
    symbols: NDArray[np.int16] = (np.sign(values) * np.floor(np.abs(values) / step + ROUNDING)).astype(
        np.int16
    )
    return symbols
