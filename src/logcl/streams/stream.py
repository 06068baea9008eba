"""Tasks, and streams of them: tasks in order of arrival and a test set that is never trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logcl.core.settings import ImageShape

Pixels = NDArray[np.uint8]
"""Images (n, channels, height, width), 0 to 255. May be a memory map: index it rather than copying it all."""

Classes = NDArray[np.int64]
"""Class indices (n,): positions in `Stream.classes`."""

Rows = NDArray[np.intp]
"""Positions of samples in an array."""


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
