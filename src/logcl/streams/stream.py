"""What a stream is: tasks in order of arrival, and a test set that is never learned from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logcl.settings import ImageShape

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
