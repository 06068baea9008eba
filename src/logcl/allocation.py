"""Which local model holds which sample: the paper's rules R1 to R3, in integers.

With units of L samples, local models hold u = floor(n / L) units, one model for each 1-bit of u, the oldest
samples in the highest level. The newest n mod L samples wait in the buffer. For L = 1 this is exactly
section 4.2 of the paper.

    n = 10, L = 1     b1010     level 3: 1..8      level 1: 9, 10
    n = 13, L = 1     b1101     level 3: 1..8      level 2: 9..12      level 0: 13
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple


class Slot(NamedTuple):
    """The samples of one 1-bit: level k holds samples `start` to `stop` inclusive, unit · 2^k of them."""

    level: int
    start: int
    stop: int

    @property
    def samples(self) -> int:
        """Number of samples in the slot."""
        return self.stop - self.start + 1


@dataclass(frozen=True)
class Plan:
    """What one task changes. All slots are ordered oldest first."""

    keep: tuple[Slot, ...]
    """Levels above the highest changed bit, which stay as they are."""
    retire: tuple[Slot, ...]
    """Levels whose samples are replayed one last time, all into the first slot of `train`."""
    train: tuple[Slot, ...]
    """Levels to fit: the highest changed bit and the 1-bits below it."""
    buffer: range
    """The newest samples, fewer than one unit, kept raw until the unit is full."""


def layout(n: int, unit: int = 1) -> tuple[Slot, ...]:
    """The slots that hold n samples, oldest first; the last n mod unit samples are in the buffer."""
    n, unit = whole(n, "the number of samples"), whole(unit, "the unit", 1)
    return _slots(n // unit, 0, unit)


def plan(n_before: int, n_after: int, unit: int = 1) -> Plan:
    """What changes when n grows from `n_before` to `n_after`; takes O(log n) time."""
    n_before, n_after = whole(n_before, "n_before"), whole(n_after, "n_after")
    unit = whole(unit, "the unit", 1)
    if n_after < n_before:
        raise ValueError(
            f"n_after = {n_after} is less than n_before = {n_before}; samples are only ever added"
        )
    before, after = n_before // unit, n_after // unit
    # Bits from `changed` upwards are the same before and after; `changed` is 0 if no unit was completed.
    changed = (before ^ after).bit_length()
    kept = after >> changed << changed
    return Plan(
        keep=_slots(kept, 0, unit),
        retire=_slots(before - kept, kept, unit),
        train=_slots(after - kept, kept, unit),
        buffer=range(after * unit + 1, n_after + 1),
    )


def max_generation(n: int, unit: int = 1) -> int:
    """The lemma's bound on re-encodings per sample: floor(log2(n / unit)).

    A sample only ever moves to a higher level, and this is the highest level of n samples.
    """
    n, unit = whole(n, "the number of samples"), whole(unit, "the unit", 1)
    return max((n // unit).bit_length() - 1, 0)


def whole(value: Any, name: str, least: int = 0) -> int:
    """The value as an int; `ValueError` unless it is an integer, of any type, of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise ValueError(f"{name} is {value!r}; give an integer of at least {least}")
    return number


# Consecutive tasks keep the same slots: the cache spares a million one-sample tasks from rebuilding them.
@lru_cache(maxsize=256)
def _slots(units: int, skipped: int, unit: int) -> tuple[Slot, ...]:
    """Slots of the 1-bits of `units`, after the first `skipped` units."""
    slots, last = [], skipped * unit
    for level in reversed(range(units.bit_length())):
        if units >> level & 1:
            slots.append(Slot(level, last + 1, last + (unit << level)))
            last = slots[-1].stop
    return tuple(slots)
