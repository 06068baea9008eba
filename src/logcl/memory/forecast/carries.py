"""What a long row of tasks retrains: `allocation.plan` of all of them at once, in integers.

A task is an addition to a binary counter of units. Taken from b to a, with all bits from `changed` upwards
equal, it retires the levels that are the 1-bits of b below `changed` and trains those of a there. So two
numbers say which levels a task replays and which it fits, and tasks with the same two cost the same.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_TASKS = 2**20
"""Tasks that are looked at one by one. Tasks up to the size of a unit are counted by bits, however many."""

Units = NDArray[np.int64]


@dataclass(frozen=True)
class Carries:
    """The tasks that take a memory from one number of samples to another, by what they retrain."""

    trained: Units
    """Units that a task fits; the 1-bits are its levels."""
    retired: Units
    """Units that it replays before."""
    tasks: Units
    """How many tasks are of this kind."""
    worst: tuple[int, int]
    """Samples before and after the first of the tasks that fit the most."""
    size: int
    """Samples that a task was taken to have."""

    def units_fitted(self) -> int:
        """By all tasks together."""
        return sum(map(operator.mul, self.trained.tolist(), self.tasks.tolist()))


def carries(start: int, stop: int, size: int, unit: int) -> Carries:
    """All tasks of `size` samples, the last perhaps smaller, that take a memory from `start` to `stop`.

    Exact, unless there are more than `MOST_TASKS` and they are larger than a unit. Then they are taken to be
    as large as the largest level that a task fills, which is more than half their size; what is counted so
    is wrong by less than one fit a sample.
    """
    if not (0 <= start < stop and size >= 1 and unit >= 1):
        raise ValueError(f"no tasks of {size} samples lead from {start} to {stop} with units of {unit}")
    if size <= unit:
        return _counted(start, stop, size, unit)
    if stop - start <= size * MOST_TASKS:
        return _looked_at(start, stop, size, unit)
    level = (size // unit).bit_length() - 1
    found = _counted(start, stop, unit << level, unit << level)
    return Carries(found.trained << level, found.retired << level, found.tasks, found.worst, found.size)


def _counted(start: int, stop: int, size: int, unit: int) -> Carries:
    """A task completes one unit or none; unit u, whose binary number ends in z zeros, has it fit level z."""
    before, after = start // unit, stop // unit
    levels = range((before ^ after).bit_length())
    found = [(1 << z, (1 << z) - 1, _ending_in(after, z) - _ending_in(before, z)) for z in levels]
    tasks = -(-(stop - start) // size)
    found.append((0, 0, tasks - (after - before)))
    found = [kind for kind in found if kind[2]]
    trained, retired, count = np.array(found, dtype=np.int64).T
    number = 1
    if after > before:
        zeros = int(trained.max()).bit_length() - 1
        completed = ((before >> zeros) + 1) << zeros  # the first unit that ends in as many zeros as any
        number = -(-(completed * unit - start) // size)
    worst = start + (number - 1) * size, min(start + number * size, stop)
    return Carries(trained, retired, count, worst, size)


def _ending_in(units: int, zeros: int) -> int:
    """How many of 1..units end in exactly so many zeros."""
    return (units >> zeros) - (units >> zeros + 1)


def _looked_at(start: int, stop: int, size: int, unit: int) -> Carries:
    held = np.append(np.arange(start, stop, size, dtype=np.int64), np.int64(stop))
    units = held // unit
    before, after = units[:-1], units[1:]
    below = before ^ after
    for shift in (1, 2, 4, 8, 16, 32):
        below |= below >> shift  # ones at and below the highest changed bit
    trained, retired = after & below, before & below
    first = int(trained.argmax())
    worst = int(held[first]), int(held[first + 1])
    return Carries(trained, retired, np.ones_like(trained), worst, size)
