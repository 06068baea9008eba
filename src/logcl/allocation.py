"""Which local model holds which sample: the paper's rules R1 to R3, in integers.

With units of L samples, u = floor(n / L) units are held by local models, one for each 1-bit of u, the
oldest samples in the highest level. The n mod L newest samples wait in the buffer. For L = 1 this is the
paper's section 4.2 to the letter.

    n = 10, L = 1     b1010     level 3: 1..8      level 1: 9, 10
    n = 13, L = 1     b1101     level 3: 1..8      level 2: 9..12      level 0: 13
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


class Slot(NamedTuple):
    """The samples of one 1-bit: level k holds samples `start` to `stop` inclusive, unit · 2^k of them."""

    level: int
    start: int
    stop: int

    @property
    def samples(self) -> int:
        """How many samples the slot holds."""
        return self.stop - self.start + 1


@dataclass(frozen=True)
class Plan:
    """What one task changes. All slots are ordered oldest first."""

    keep: tuple[Slot, ...]
    """Levels above the highest changed bit: not touched."""
    retire: tuple[Slot, ...]
    """Levels whose samples are replayed one last time, all into the first slot of `train`."""
    train: tuple[Slot, ...]
    """Levels to fit: the highest changed bit and the 1-bits below it."""
    buffer: range
    """The newest samples, fewer than one unit, which stay raw until the unit is full."""


def layout(n: int, unit: int = 1) -> tuple[Slot, ...]:
    """The slots that hold n samples, oldest first; the last n mod unit samples are in none of them."""
    _check(n, unit)
    return _slots(n // unit, 0, unit)


def plan(n_before: int, n_after: int, unit: int = 1) -> Plan:
    """What has to be retrained when n grows from `n_before` to `n_after`, in time O(log n)."""
    _check(n_before, unit)
    if n_after < n_before:
        raise ValueError(f"n_after = {n_after} is less than n_before = {n_before}: samples never leave")
    before, after = n_before // unit, n_after // unit
    # Bits from `changed` upwards are equal before and after; `changed` is 0 where no unit was completed.
    changed = (before ^ after).bit_length()
    kept = after >> changed << changed
    return Plan(
        keep=_kept(kept, unit),
        retire=_slots(before - kept, kept, unit),
        train=_slots(after - kept, kept, unit),
        buffer=range(after * unit + 1, n_after + 1),
    )


def max_generation(n: int, unit: int = 1) -> int:
    """The lemma's bound, floor(log2(n / unit)): no sample of n is re-encoded more often than this.

    A sample moves only to a higher level, and the highest level of n samples is this number.
    """
    return max((n // unit).bit_length() - 1, 0)


# Consecutive tasks keep the same slots, so that a million one-sample tasks build few of them.
@lru_cache(maxsize=256)
def _kept(units: int, unit: int) -> tuple[Slot, ...]:
    return _slots(units, 0, unit)


def _slots(units: int, skipped: int, unit: int) -> tuple[Slot, ...]:
    """Slots of the 1-bits of `units`, behind `skipped` units that are held elsewhere."""
    slots = []
    start = skipped * unit + 1
    while units:
        level = units.bit_length() - 1
        after = start + (unit << level)
        slots.append(Slot(level, start, after - 1))
        start = after
        units ^= 1 << level
    return tuple(slots)


def _check(n: int, unit: int) -> None:
    if n < 0:
        raise ValueError(f"the number of samples is {n}; it cannot be negative")
    if unit < 1:
        raise ValueError(f"the unit is {unit}; it must be at least one sample")
