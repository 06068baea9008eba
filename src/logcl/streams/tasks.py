"""Test split and assignment of samples to tasks: pure functions of labels and a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logcl.core.errors import BadSettings
from logcl.streams.stream import Classes, Rows

TEST_SHARE = 0.2

# Each purpose has its own generator, derived from the one seed, so that drawing more for one does not change
# another.
_SPLIT, _ORDER, _SHUFFLE = 1, 2, 3


def check_seed(seed: int | None) -> None:
    """Refuse a seed that is neither None nor an integer of at least 0."""
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise BadSettings(f"the seed {seed!r} is not valid; give an integer of at least 0, or None")


def _generator(seed: int | None, draw: int) -> np.random.Generator:
    return np.random.default_rng([int(seed or 0), draw])


def _rows_by_value(values: Classes) -> list[Rows]:
    """The rows of each value that occurs; values and rows ascending."""
    rows = np.argsort(values, kind="stable")
    return np.split(rows, np.flatnonzero(np.diff(values[rows])) + 1)


def class_order(count: int, seed: int | None) -> tuple[int, ...]:
    """The order in which `count` classes arrive: natural for None, else drawn with the seed."""
    if seed is None:
        return tuple(range(count))
    return tuple(int(c) for c in _generator(seed, _ORDER).permutation(count))


def split_rows(strata: Classes, seed: int | None) -> tuple[Rows, Rows]:
    """Split samples into training and test rows, both ascending, 80 to 20 within each stratum.

    `strata` (n,) is the stratum of each sample: its class, or its class within its task. A single sample
    stays in training; any larger stratum has at least one test sample.
    """
    generator = _generator(seed, _SPLIT)
    test = np.zeros(len(strata), bool)
    for rows in _rows_by_value(strata):
        if len(rows) > 1:
            test[generator.permutation(rows)[: max(1, round(TEST_SHARE * len(rows)))]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def pieces_per_class(counts: Sequence[int], tasks: int) -> tuple[int, ...]:
    """Number of single-class tasks per class: nearly equal, and at most one per sample.

    Requires len(counts) <= tasks <= sum(counts). Tasks that a small class cannot fill go to the others.
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
    """Assign each of the training samples `rows`, with labels `y` (n,), to one task; no task is empty.

    With at most as many tasks as classes, the classes in `order` are split into nearly equal groups; with
    more, each class is cut into consecutive tasks. The seed shuffles the samples within each task.
    """
    generator = _generator(seed, _SHUFFLE)
    check_tasks(tasks, len(rows))
    rank = np.argsort(np.asarray(order))  # position of each class in the order
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
    """The rows of each task, shuffled; `groups` (n,) is the task of each sample, from 0, none empty."""
    generator = _generator(seed, _SHUFFLE)
    return tuple(generator.permutation(rows[groups[rows] == g]) for g in range(int(groups.max()) + 1))


def check_tasks(tasks: int, samples: int) -> None:
    """Refuse a number of tasks that is not an integer or would leave a task empty."""
    if isinstance(tasks, bool) or not isinstance(tasks, (int, np.integer)):
        raise BadSettings(f"the number of tasks {tasks!r} is not an integer; give one")
    if not 1 <= tasks <= samples:
        raise BadSettings(
            f"{samples} training samples cannot be split into {tasks} tasks; choose 1 to {samples}"
        )
