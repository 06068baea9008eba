"""What a stream is: tasks in order of arrival, and a test set that is never learned from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from logcl.core.settings import ImageShape

Pixels = NDArray[np.uint8]
"""Images as (n, channels, height, width), 0 to 255. May be a memory map: index it, do not copy it whole."""

Classes = NDArray[np.int64]
"""Class indices, one a sample: positions in `Stream.classes`."""

Rows = NDArray[np.intp]
"""Positions of samples in an array."""


@dataclass(frozen=True, eq=False)
class Task:
    """Labelled samples that arrive together."""

    x: Pixels
    y: Classes

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Stream:
    """A data set cut into tasks. Iterating reads one task at a time; the arrays may be read-only memory maps.

    Learn from the tasks, not from `source_x`: where the test part was split off by the seed, the source still
    holds it, because copying the rest would double the memory.
    """

    name: str
    classes: tuple[str, ...]
    """Class names; `y` holds positions in this tuple, whatever order the tasks come in."""
    source_x: Pixels
    source_y: Classes
    members: tuple[Rows, ...]
    """For each task the rows of `source_x` that arrive with it, in order of arrival."""
    test_x: Pixels
    test_y: Classes
    subset: str | None = None
    """Which part of the data this is, in words; None for all of it."""

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height, width."""
        channels, height, width = self.source_x.shape[1:]
        return int(channels), int(height), int(width)

    @property
    def samples(self) -> int:
        """Training samples over all tasks."""
        return sum(len(rows) for rows in self.members)

    @property
    def task_classes(self) -> tuple[tuple[int, ...], ...]:
        """For each task the classes that it brings, ascending."""
        return tuple(tuple(int(c) for c in np.unique(self.source_y[rows])) for rows in self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Task]:
        for rows in self.members:
            yield Task(np.ascontiguousarray(self.source_x[rows]), np.asarray(self.source_y[rows]))

    def thinned(
        self, per_class: int | None = None, *, one_class_in: int = 1, test_per_class: int | None = None
    ) -> Stream:
        """A smaller stream of as many tasks: the first samples of a class to arrive, one class in so many.

        `one_class_in` counts within a task, so that each keeps at least one class.
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
        words += [f"{per_class} samples a class"] if per_class is not None else []
        words += [f"{test_per_class} test samples a class"] if test_per_class is not None else []
        return replace(
            self,
            classes=tuple(self.classes[c] for c in kept),
            source_y=number[self.source_y],
            members=tuple(rows for rows in members if len(rows)),
            test_x=self.test_x[test],
            test_y=number[self.test_y[test]],
            subset=", ".join(words) or None,
        )
