"""Numbers and names formatted for people."""

from __future__ import annotations

import math
from collections.abc import Sequence


def printable(text: object) -> str:
    """Text from an untrusted file, safe to print on a terminal.

    Characters that are not printable (control sequences, line breaks, lone surrogates) are escaped as in
    Python's `repr`.
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(text))


def one_line(text: str) -> str:
    """The text without line breaks, which would end a row or heading in Markdown."""
    return " ".join(line for line in map(str.strip, text.splitlines()) if line)


def human_bytes(count: float) -> str:
    """1,234 B, 12.3 kB, 4.56 MB, ..."""
    if count < 10_000:
        return f"{count:,.0f} B"
    power = next((power for power in (1, 2, 3, 4) if count < 999.5 * 1000**power), 5)
    return f"{_three_digits(count / 1000**power)} {'kMGTP'[power - 1]}B"


def human_seconds(seconds: float) -> str:
    """12 s, 3.4 min, 1.2 h."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{_three_digits(minutes)} min" if minutes < 100 else f"{_three_digits(minutes / 60)} h"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard error, e.g. 12.34 ± 0.05; the mean alone for one value, a dash for none."""
    count = len(values)
    if not count:
        return "–"
    mean = math.fsum(values) / count
    if count == 1:
        return f"{mean:.{digits}f}"
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return f"{mean:.{digits}f} ± {math.sqrt(variance / count):.{digits}f}"
