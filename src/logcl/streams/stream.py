"""What a stream is: tasks in order of arrival, and a test set that is never learned from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""Images as (n, channels, height, width), 0 to 255. May be a memory map: index it, do not copy it whole."""

Classes = NDArray[np.int64]
"""Class indices, one a sample: positions in `Stream.classes`."""


@dataclass(frozen=True)
class Task:
    """Labelled samples that arrive together."""

    x: Pixels
    y: Classes

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Stream:
    """A data set cut into tasks. Iterating reads one task at a time; arrays may be memory maps."""

    name: str
    classes: tuple[str, ...]
    """Class names; `y` holds positions in this tuple, whatever order the tasks come in."""
    train_x: Pixels
    train_y: Classes
    test_x: Pixels
    test_y: Classes
    members: tuple[NDArray[np.intp], ...]
    """For each task the rows of `train_x` that arrive with it, in order of arrival."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.train_x.shape[1:]
        return int(channels), int(height), int(width)

    @property
    def task_classes(self) -> tuple[tuple[int, ...], ...]:
        """For each task the classes that it brings, ascending."""
        return tuple(tuple(int(c) for c in np.unique(self.train_y[rows])) for rows in self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Task]:
        for rows in self.members:
            yield Task(np.ascontiguousarray(self.train_x[rows]), np.asarray(self.train_y[rows]))
