"""Which samples test, and which arrive with which task: pure functions of labels and a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logcl.core.errors import BadSettings
from logcl.streams.stream import Classes, Rows

TEST_SHARE = 0.2

# One seed feeds several draws; each has its own generator, so that one more draw in the first does not
# change the second.
_SPLIT, _ORDER, _SHUFFLE = 1, 2, 3


def check_seed(seed: int | None) -> None:
    """Refuse what is neither None nor a whole number from 0."""
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise BadSettings(f"The seed must be a whole number from 0 or None, not {seed!r}.")


def _generator(seed: int | None, draw: int) -> np.random.Generator:
    return np.random.default_rng([int(seed or 0), draw])


def _rows_by_value(values: Classes) -> list[Rows]:
    """For each value that occurs, ascending, its rows, ascending."""
    rows = np.argsort(values, kind="stable")
    return np.split(rows, np.flatnonzero(np.diff(values[rows])) + 1)


def class_order(count: int, seed: int | None) -> tuple[int, ...]:
    """The order in which `count` classes arrive: natural for None, else drawn with the seed."""
    if seed is None:
        return tuple(range(count))
    return tuple(int(c) for c in _generator(seed, _ORDER).permutation(count))


def split_rows(strata: Classes, seed: int | None) -> tuple[Rows, Rows]:
    """Split samples into training and test rows, both ascending, 80 to 20 within each stratum.

    `strata` (n,) names the group of each sample: its class, or its class within its task. A group of one
    stays in training; any larger group gives at least one sample to the test.
    """
    generator = _generator(seed, _SPLIT)
    test = np.zeros(len(strata), bool)
    for rows in _rows_by_value(strata):
        if len(rows) > 1:
            test[generator.permutation(rows)[: max(1, round(TEST_SHARE * len(rows)))]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def pieces_per_class(counts: Sequence[int], tasks: int) -> tuple[int, ...]:
    """How many of `tasks` one-class tasks each class gets: nearly equally many, never more than samples.

    Needs len(counts) <= tasks <= sum(counts). What a small class cannot take goes to the others.
    """
    room = np.asarray(counts, np.int64)
    pieces = np.zeros_like(room)
    left = tasks
    while left:
        open_classes = np.flatnonzero(pieces < room)[:left]
        share = max(1, left // len(open_classes))
        given = np.minimum(share, (room - pieces)[open_classes])
        pieces[open_classes] += given
        left -= int(given.sum())
    return tuple(int(p) for p in pieces)


def cut_rows(y: Classes, rows: Rows, order: Sequence[int], tasks: int, seed: int | None) -> tuple[Rows, ...]:
    """Deal the training samples `rows` of labels `y` (n,) out to tasks; each in exactly one, no task empty.

    Up to as many tasks as classes, the classes in `order` are grouped into nearly equal groups; beyond that
    each class is cut into several consecutive tasks. Samples are shuffled by the seed within a task.
    """
    generator = _generator(seed, _SHUFFLE)
    check_tasks(tasks, len(rows))
    rank = np.argsort(np.asarray(order))  # of each class in the order
    by_class = [rows[places] for places in _rows_by_value(rank[y[rows]])]
    if tasks <= len(by_class):
        groups = np.array_split(np.arange(len(by_class)), tasks)
        return tuple(generator.permutation(np.concatenate([by_class[c] for c in group])) for group in groups)
    pieces = pieces_per_class([len(members) for members in by_class], tasks)
    return tuple(
        piece
        for members, count in zip(by_class, pieces, strict=True)
        for piece in np.array_split(generator.permutation(members), count)
    )


def group_rows(groups: Classes, rows: Rows, seed: int | None) -> tuple[Rows, ...]:
    """The tasks of samples that already belong to one: `groups` (n,) counts from 0, each has a row."""
    generator = _generator(seed, _SHUFFLE)
    return tuple(generator.permutation(rows[groups[rows] == g]) for g in range(int(groups.max()) + 1))


def check_tasks(tasks: int, samples: int) -> None:
    """Refuse a number of tasks that would leave one empty."""
    if isinstance(tasks, bool) or not isinstance(tasks, (int, np.integer)):
        raise BadSettings(f"The number of tasks must be a whole number, not {tasks!r}.")
    if not 1 <= tasks <= samples:
        raise BadSettings(
            f"{tasks} tasks cannot be made of {samples} training samples: choose 1 to {samples} tasks."
        )
