"""What every method is given and what it must do."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from logcl.diagnostics import Trap
from logcl.networks import ClassifierSpec
from logcl.progress import Progress, Silent
from logcl.settings import Settings
from logcl.streams import Task
from logcl.training import Work, generator_for


class Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to `phase`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - started


@dataclass(frozen=True)
class Problem:
    """What a method knows before the first task."""

    settings: Settings
    """Image shape, seed, and the classifier that all methods share."""
    classes: tuple[str, ...]
    folder: Path
    """Where it may keep files."""
    progress: Progress = field(default_factory=Silent)
    clock: Clock = field(default_factory=Clock)
    """Methods book their training under `train`, so that it can be told from prediction."""

    def work(self, *key: int) -> Work:
        """A piece of training of its own, told from others by its key."""
        return Work(generator_for(self.settings.seed, *key), self.progress, "classifier")

    @property
    def network(self) -> ClassifierSpec:
        """The classifier that all methods train."""
        return ClassifierSpec(
            network=self.settings.classifier.network,
            width=self.settings.classifier.width,
            image_shape=self.settings.image_shape,
            classes=len(self.classes),
        )


class Method(Protocol):
    """A continual learner. It sees each task once, in order."""

    def learn(self, task: Task) -> None:
        """Take in one task; its data is gone afterwards."""

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Class numbers (n,) of images (n, C, H, W), among all classes seen so far.

        Trains first if the method does that lazily. Before any task: `NotTrained`.
        """

    def nbytes(self) -> int:
        """Bytes of everything that is needed to go on with the next task."""


@dataclass(frozen=True)
class Replayed:
    """Every sample as a method gives it back."""

    x: NDArray[np.uint8]
    arrival: NDArray[np.int64]
    """For each row the 0-based order of arrival of the sample it stands for."""
    generations: NDArray[np.int64]
    """How often it was re-encoded; -1 if it is still raw."""


@runtime_checkable
class Replays(Protocol):
    """A method that can show what it remembers of each sample, to be compared with the original."""

    def replayed(self) -> Replayed:
        """All samples seen so far."""


@runtime_checkable
class HasLevels(Protocol):
    """A method whose samples come out of several decoders, by whose distortions labels may be inferred."""

    def trap(self, x: NDArray[np.uint8], y: NDArray[np.int64]) -> Trap:
        """How far that has happened, examined on test images (n, C, H, W) and class numbers (n,)."""
