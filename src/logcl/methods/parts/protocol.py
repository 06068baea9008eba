"""The protocol of a method: what it is given and what it must provide."""

from __future__ import annotations

import abc
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core.progress import Progress, Silent
from logcl.core.settings import Frozen
from logcl.memory.diagnostics import Trap
from logcl.memory.presets import USUAL_BUDGET
from logcl.memory.settings import Settings
from logcl.nn import blobs
from logcl.nn.networks import ClassifierSpec
from logcl.nn.training import Work, generator_for
from logcl.streams import Task

State = dict[str, Tensor]
"""Named tensors from which a method can be restored."""

Keeps = Literal["none", "budget", "all"]
"""Which samples a method keeps, in any form: none, as many as its budget allows, or all."""

BOOKKEEPING = "bookkeeping."
"""Part of the name of state that does not count as memory."""


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
    """Where the method may store files."""
    budget: str = USUAL_BUDGET
    """What methods with a buffer may keep; see `exemplars.capacity`."""
    progress: Progress = field(default_factory=Silent)
    clock: Clock = field(default_factory=Clock)
    """Methods time their training as `train` and `absorb`, to separate it from prediction."""

    def work(self, *key: int, name: str = "classifier") -> Work:
        """The random generator and progress of one fit; different keys give independent randomness."""
        return Work(generator_for(self.settings.seed, *key), self.progress, name)

    @property
    def network(self) -> ClassifierSpec:
        """The classifier that all methods train."""
        return ClassifierSpec.of(self.settings.classifier, self.settings.image_shape, len(self.classes))


class Part:
    """Something a method keeps from task to task: the attributes it names, and the parts it has.

    Attributes are tensors, numbers or networks. A class's default value is not kept until it is replaced, a
    `cached_property` not until it is built.
    """

    kept: tuple[str, ...] = ()
    """Attributes that count as memory."""
    bookkeeping: tuple[str, ...] = ()
    """Attributes that do not: sample order, which only experiments need to compare replay with the originals,
    and classifiers that can be retrained."""

    def state(self) -> State:
        """Everything it consists of; the names of what is not memory contain `BOOKKEEPING`."""
        state: State = {}
        for name, key in self._keys().items():
            value: Any = vars(self).get(name)
            if isinstance(value, nn.Module):
                state |= blobs.weights(value, key)
            elif hasattr(value, "restore"):
                state |= {f"{key}.{inner}": tensor for inner, tensor in value.state().items()}
            elif value is not None:
                state[key] = torch.as_tensor(value).cpu()
        return state

    def restore(self, state: State) -> None:
        """The inverse of `state`; only for something that has not learned anything yet."""
        for name, key in self._keys().items():
            if key in state:
                value, kind = state[key].clone(), type(getattr(self, name))
                setattr(self, name, value if kind is Tensor else kind(value))
            inner = {k.removeprefix(f"{key}."): v for k, v in state.items() if k.startswith(f"{key}.")}
            if inner:
                part = getattr(self, name)
                if isinstance(part, nn.Module):
                    part.load_state_dict(inner)
                    part.eval()
                else:
                    part.restore(inner)

    def _keys(self) -> dict[str, str]:
        """The attributes to keep, and what each is called in the state."""
        parts = [name for name, value in vars(self).items() if hasattr(value, "restore")]
        uncounted = {name: BOOKKEEPING + name for name in self.bookkeeping}
        return uncounted | {name: name for name in (*self.kept, *parts)}


@dataclass(frozen=True)
class Replayed:
    """Every sample as a method replays it."""

    x: NDArray[np.uint8]
    arrival: NDArray[np.int64]
    """The 0-based order of arrival of the sample in each row."""
    generations: NDArray[np.int64]
    """How often it was re-encoded; -1 if it is still raw."""
    levels: NDArray[np.int64]
    """The level it came from; -1 if it is still raw."""


@dataclass(frozen=True)
class Effort:
    """What the last task cost a method with generative models."""

    trained: int = 0
    """Samples that were fitted."""
    replayed: int = 0
    """How many of them were replayed from retired models."""
    models: int = 0
    """Generative models after the task."""


class Method(Part, abc.ABC):
    """A continual learner, which sees each task once, in order.

    Everything it keeps from task to task is named in `kept`, or is an attribute with `state` and `restore`.
    Only this is counted, saved and restored; a subclass may also extend these two.
    """

    name: ClassVar[str]
    """What users call it: lower-case letters, digits and hyphens."""
    summary: ClassVar[str] = ""
    """One line for `logcl methods list`."""
    bound: ClassVar[bool] = False
    """Whether it is a lower or upper bound for the others rather than a rival."""
    keeps: ClassVar[Keeps] = "none"
    Options: ClassVar[type[Frozen]] = Frozen
    """The type of `options`: the method's own hyperparameters, each with a docstring."""
    options: Any

    def __init__(self, problem: Problem, options: object = None) -> None:
        self.problem = problem
        self.options = self.Options() if options is None else options

    @abc.abstractmethod
    def learn(self, task: Task) -> None:
        """Learn one task; its data is gone afterwards."""

    @abc.abstractmethod
    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Class numbers (n,) of images (n, C, H, W), among all classes seen so far.

        Methods that train lazily train first. Raises `NotTrained` before the first task.
        """

    def nbytes(self) -> int:
        """Size of the state in bytes. Whatever is not in the state is lost on resume."""
        return sum(value.nbytes for name, value in self.state().items() if BOOKKEEPING not in name)

    def classifier_bytes(self) -> int:
        """Size of its classifier as it would be stored; 0 if that is counted in `nbytes`."""
        return 0

    def effort(self) -> Effort:
        """What the last task cost; zeros for a method without generative models."""
        return Effort()

    def replayed(self) -> Replayed | None:
        """All samples seen so far, for comparison with the originals; None if it cannot replay them."""

    def trap(self, x: NDArray[np.uint8], y: NDArray[np.int64]) -> Trap | None:
        """How much the classifier relies on the distortions of several decoders, which may leak labels.

        Measured on test images (n, C, H, W) and class numbers (n,); None for a method without levels.
        """
