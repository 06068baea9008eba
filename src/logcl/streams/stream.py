"""Tasks, and streams of them: tasks in order of arrival and a test set that is never trained on.

Test split and assignment of samples to tasks are pure functions of labels and a seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logcl.core.errors import BadSettings, DataError
from logcl.core.inputs import is_text
from logcl.core.settings import ImageShape

Pixels = NDArray[np.uint8]
"""Images (n, channels, height, width), 0 to 255. May be a memory map: index it rather than copying it all."""

Classes = NDArray[np.int64]
"""Class indices (n,): positions in `Stream.classes`."""

Rows = NDArray[np.intp]
"""Positions of samples in an array."""

TEST_SHARE = 0.2

# Each purpose has its own generator, derived from the one seed, so that drawing more for one does not change
# another.
_SPLIT, _ORDER, _SHUFFLE = 1, 2, 3


@dataclass(frozen=True, eq=False)
class Task:
    """Labelled samples that arrive together."""

    x: Pixels
    y: NDArray[Any]
    """(n,) class indices in a `Stream`; the labels themselves, strings or integers, from `read_tasks`."""
    source: str = ""
    """Where the samples come from, e.g. the path of a folder."""
    skipped: tuple[tuple[Path, str], ...] = ()
    """Unreadable files that were left out, with the reasons."""

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Stream:
    """A data set cut into tasks. Iterating reads one task at a time; the arrays may be read-only memory maps.

    Train on the tasks, not on `source_x`: if the test set was split off by the seed, `source_x` still holds
    it, because copying the rest would take the memory twice.
    """

    name: str
    classes: tuple[str, ...]
    """Class names; `y` holds positions in this tuple, whatever the order of the tasks."""
    source_x: Pixels
    source_y: Classes
    members: tuple[Rows, ...]
    """For each task its rows of `source_x`, in order of arrival."""
    test_x: Pixels
    test_y: Classes
    subset: str | None = None
    """Description of the part of the data this is; None for all of it."""

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height, width."""
        channels, height, width = self.source_x.shape[1:]
        return int(channels), int(height), int(width)

    @property
    def samples(self) -> int:
        """Number of training samples in all tasks."""
        return sum(len(rows) for rows in self.members)

    @property
    def task_classes(self) -> tuple[tuple[int, ...], ...]:
        """For each task its classes, ascending."""
        return tuple(tuple(int(c) for c in np.unique(self.source_y[rows])) for rows in self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Task]:
        for rows in self.members:
            yield Task(np.ascontiguousarray(self.source_x[rows]), np.asarray(self.source_y[rows]))

    def thinned(
        self, per_class: int | None = None, *, one_class_in: int = 1, test_per_class: int | None = None
    ) -> Stream:
        """A smaller stream with the same number of tasks.

        It keeps every `one_class_in`-th class of each task, starting with the first, and of each class the
        first `per_class` training samples to arrive and the first `test_per_class` test samples.
        """
        kept = np.unique([c for classes in self.task_classes for c in classes[::one_class_in]]).astype(int)
        number = np.full(len(self.classes), -1)
        number[kept] = np.arange(len(kept))
        arrived = np.zeros(len(self.classes), int)
        members = []
        for rows in self.members:
            chosen = []
            for row, label in zip(rows, self.source_y[rows], strict=True):
                if number[label] >= 0 and (per_class is None or arrived[label] < per_class):
                    arrived[label] += 1
                    chosen.append(row)
            members.append(np.array(chosen, np.intp))
        test = np.flatnonzero(number[self.test_y] >= 0)
        if test_per_class is not None:
            test = np.sort(np.concatenate([test[self.test_y[test] == c][:test_per_class] for c in kept]))
        words = [f"{len(kept)} of {len(self.classes)} classes"] if len(kept) < len(self.classes) else []
        words += [f"{per_class} samples per class"] if per_class is not None else []
        words += [f"{test_per_class} test samples per class"] if test_per_class is not None else []
        return replace(
            self,
            classes=tuple(self.classes[c] for c in kept),
            source_y=number[self.source_y],
            members=tuple(rows for rows in members if len(rows)),
            test_x=self.test_x[test],
            test_y=number[self.test_y[test]],
            subset=", ".join(words) or None,
        )


def class_sorted(names: Iterable[str], place: Path) -> tuple[str, ...]:
    """Distinct class names, sorted; by value if all of them are integers.

    A DataError if one cannot be stored, e.g. a folder name that is not UTF-8.
    """
    unique = sorted(set(names))
    for name in unique:
        if not is_text(name):
            raise DataError(f"{place} has a class with the name {name!r}, which is not valid text; rename it")
    if all(re.fullmatch(r"-?[0-9]+", name) for name in unique):
        unique.sort(key=int)
    return tuple(unique)


def class_indices(labels: Iterable[object], classes: Sequence[str]) -> Classes:
    """(n,) the position in `classes` of each label."""
    index = {name: position for position, name in enumerate(classes)}
    return np.array([index[str(label)] for label in labels], np.int64)


def check_seed(seed: int | None) -> None:
    """Refuse a seed that is neither None nor an integer of at least 0."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0):
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
    if isinstance(tasks, bool) or not isinstance(tasks, (int, np.integer)) or not 1 <= tasks <= len(rows):
        raise BadSettings(
            f"{len(rows)} training samples cannot be split into {tasks!r} tasks; choose 1 to {len(rows)}"
        )
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
