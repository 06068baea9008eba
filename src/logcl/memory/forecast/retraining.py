"""Which levels a long sequence of tasks fits and replays: `allocation.plan` of all tasks at once.

The units held are a binary counter, and a task adds to it. If the counter goes from b to a, the task replays
the levels that are 1-bits of b and fits those that are 1-bits of a, up to the highest bit that changes. Tasks
that replay and fit the same levels are counted together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

MAX_ENUMERATED = 2**20
"""Tasks that are planned one by one. Tasks no larger than a unit are counted in closed form instead."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Retraining:
    """All tasks that take a memory from one number of samples to another, grouped by the levels they fit."""

    fitted: Counts
    """Units fitted by each task of the group; the 1-bits are the levels."""
    replayed: Counts
    """Units replayed by each task of the group."""
    tasks: Counts
    """Tasks in the group."""
    worst: tuple[int, int]
    """Samples held before and after the first of the tasks that fit the most."""
    task_size: int
    """Samples per task in this count."""


def count_retraining(start: int, stop: int, task_size: int, unit: int) -> Retraining:
    """Count the tasks of `task_size` samples, the last perhaps smaller, between `start` and `stop` samples.

    Exact, except for more than `MAX_ENUMERATED` tasks that are larger than a unit: those are counted as tasks
    of unit · 2^k samples for the largest such size that fits into one, which is more than half of it. The
    error is then less than one encoding per sample.
    """
    if not (0 <= start < stop and task_size >= 1 and unit >= 1):
        raise ValueError(f"no tasks of {task_size} samples lead from {start} to {stop} with units of {unit}")
    if task_size <= unit:
        return _in_closed_form(start, stop, task_size, unit)
    if stop - start <= task_size * MAX_ENUMERATED:
        return _one_by_one(start, stop, task_size, unit)
    level = (task_size // unit).bit_length() - 1
    found = _in_closed_form(start, stop, unit << level, unit << level)
    return replace(found, fitted=found.fitted << level, replayed=found.replayed << level)


def _in_closed_form(start: int, stop: int, task_size: int, unit: int) -> Retraining:
    """A task completes at most one unit; unit u makes it fit level z, the number of trailing zeros of u."""
    before, after = start // unit, stop // unit
    groups = []
    for z in range((before ^ after).bit_length()):
        # Of the numbers 1..u, (u >> z) - (u >> z + 1) have exactly z trailing zeros.
        tasks = (after >> z) - (after >> z + 1) - (before >> z) + (before >> z + 1)
        groups.append((1 << z, (1 << z) - 1, tasks))
    total = -(-(stop - start) // task_size)
    groups.append((0, 0, total - (after - before)))
    fitted, replayed, tasks = np.array([group for group in groups if group[2]], dtype=np.int64).T
    number = 1
    if after > before:
        zeros = int(fitted.max()).bit_length() - 1
        completed = ((before >> zeros) + 1) << zeros  # the first unit with that many trailing zeros
        number = -(-(completed * unit - start) // task_size)
    worst = start + (number - 1) * task_size, min(start + number * task_size, stop)
    return Retraining(fitted, replayed, tasks, worst, task_size)


def _one_by_one(start: int, stop: int, task_size: int, unit: int) -> Retraining:
    held = np.append(np.arange(start, stop, task_size, dtype=np.int64), np.int64(stop))
    units = held // unit
    before, after = units[:-1], units[1:]
    below = before ^ after
    for shift in (1, 2, 4, 8, 16, 32):
        below |= below >> shift  # sets every bit up to the highest that changed
    fitted, replayed = after & below, before & below
    first = int(fitted.argmax())
    worst = int(held[first]), int(held[first + 1])
    return Retraining(fitted, replayed, np.ones_like(fitted), worst, task_size)
