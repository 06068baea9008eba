"""Numbers and names as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def printable(text: object) -> str:
    """Words from a file that anybody may have written, as they may be shown on a terminal.

    Whatever is not printable (control sequences, line breaks, halves of characters) is written as in Python.
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(text))


def human_bytes(count: float) -> str:
    """1,234 B, 12.3 kB, 4.56 MB, ..."""
    if count < 10_000:
        return f"{count:,.0f} B"
    power = min(int(math.log10(count)) // 3, 4)
    return f"{count / 1000**power:.3g} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def human_seconds(seconds: float) -> str:
    """12 s, 3.4 min, 1.2 h."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """12.34 ± 0.05: the mean, and its standard error where there are several values."""
    if not len(values):
        return "–"
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}"
