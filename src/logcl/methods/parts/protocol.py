"""What every method is given and what it must do."""

from __future__ import annotations

import abc
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from logcl.core.progress import Progress, Silent
from logcl.core.settings import Frozen
from logcl.memory.diagnostics import Trap
from logcl.memory.presets import USUAL_BUDGET
from logcl.memory.settings import Settings
from logcl.nn.networks import ClassifierSpec
from logcl.nn.training import Work, generator_for
from logcl.streams import Task

State = dict[str, Tensor]
"""Everything that a method needs to go on, by name."""

Keeps = Literal["none", "budget", "all"]
"""Which samples a method keeps, in whatever form: none, as many as its budget allows, or all."""

BOOKKEEPING = "bookkeeping."
"""Names of what only an experiment needs, to compare replay with the originals, and of classifiers that can
be trained again: not counted as memory."""


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
    budget: str = USUAL_BUDGET
    """What methods with a buffer may keep: see `exemplars.capacity`."""
    progress: Progress = field(default_factory=Silent)
    clock: Clock = field(default_factory=Clock)
    """Methods book their training under `train` and `absorb`, so that it can be told from prediction."""

    def work(self, *key: int, name: str = "classifier") -> Work:
        """A piece of training of its own, told from others by its key."""
        return Work(generator_for(self.settings.seed, *key), self.progress, name)

    @property
    def network(self) -> ClassifierSpec:
        """The classifier that all methods train."""
        return ClassifierSpec(
            network=self.settings.classifier.network,
            width=self.settings.classifier.width,
            image_shape=self.settings.image_shape,
            classes=len(self.classes),
        )


class Part(Protocol):
    """Something that a method keeps from task to task."""

    def state(self) -> State:
        """Everything it consists of."""

    def restore(self, state: State) -> None:
        """The inverse of `state`; finds its own among the state of the whole method."""


class Solves(Part, Protocol):
    """The part that answers."""

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """As `Method.predict`."""


class Method(abc.ABC):
    """A continual learner. It sees each task once, in order.

    What it keeps are its parts, and nothing else: they are what is counted, saved and loaded.
    """

    Options: ClassVar[type[Frozen]] = Frozen
    """The hyperparameters that are its own; `options` holds their values."""
    keeps: ClassVar[Keeps] = "none"

    solver: Solves

    def __init__(self, problem: Problem, options: Any = None) -> None:
        self.problem = problem
        self.options = self.Options() if options is None else options

    @abc.abstractmethod
    def learn(self, task: Task) -> None:
        """Take in one task; its data is gone afterwards."""

    def parts(self) -> tuple[Part, ...]:
        """Everything that is needed to go on with the next task and to predict."""
        return (self.solver,)

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Class numbers (n,) of images (n, C, H, W), among all classes seen so far.

        Trains first if the method does that lazily. Before any task: `NotTrained`.
        """
        return self.solver.predict(x)

    def state(self) -> State:
        """The state of all parts, by name."""
        return {name: value for part in self.parts() for name, value in part.state().items()}

    def restore(self, state: State) -> None:
        """Go on where `state` was taken; only for a method that has learned nothing yet."""
        for part in self.parts():
            part.restore(state)

    def nbytes(self) -> int:
        """Bytes of everything that is needed to go on: a method can leave nothing out without losing it."""
        return sum(value.nbytes for name, value in self.state().items() if not name.startswith(BOOKKEEPING))


@dataclass(frozen=True)
class Replayed:
    """Every sample as a method gives it back."""

    x: NDArray[np.uint8]
    arrival: NDArray[np.int64]
    """For each row the 0-based order of arrival of the sample it stands for."""
    generations: NDArray[np.int64]
    """How often it was re-encoded; -1 if it is still raw."""
    levels: NDArray[np.int64]
    """Which model it came out of; -1 if it is still raw."""


@runtime_checkable
class Replays(Protocol):
    """A method that can show what it remembers of each sample, to be compared with the original."""

    def replayed(self) -> Replayed:
        """All samples seen so far."""


@dataclass(frozen=True)
class Effort:
    """What the last task cost a method with generative models."""

    trained: int
    """Samples that were fitted."""
    replayed: int
    """How many of them came out of models that are gone now."""
    models: int
    """Models alive."""


@runtime_checkable
class HasEffort(Protocol):
    """A method that keeps samples in generative models."""

    def effort(self) -> Effort:
        """What the last task took."""


@runtime_checkable
class HasLevels(Protocol):
    """A method whose samples come out of several decoders, by whose distortions labels may be inferred."""

    def trap(self, x: NDArray[np.uint8], y: NDArray[np.int64]) -> Trap:
        """How far that has happened, examined on test images (n, C, H, W) and class numbers (n,)."""
