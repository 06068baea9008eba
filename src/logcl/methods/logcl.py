"""LogCL: the memory absorbs each task; the global model is trained on replay when a prediction is needed."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray

from logcl import allocation
from logcl.core.errors import CannotWrite, Damaged, NotAMemory, NotTrained
from logcl.core.files import write_atomically
from logcl.memory import diagnostics
from logcl.memory.classifier import Classifier
from logcl.memory.memory import Memory
from logcl.memory.samples import generations
from logcl.methods.parts.protocol import BOOKKEEPING, Effort, Method, Problem, Replayed, State
from logcl.streams import Task

MEMORY = "memory.logcl"


class LogCL(Method):
    """The paper's method; everything it keeps is the file `memory.logcl` in the run's folder."""

    name = "logcl"
    summary = "the paper's method: every sample in logarithmically many generative models"
    keeps = "all"

    def __init__(self, problem: Problem, options: object = None) -> None:
        super().__init__(problem, options)
        self.memory = Memory(problem.folder / MEMORY)
        self.classifier: Classifier | None = None
        self.arrival = np.empty(0, dtype=np.int64)
        self._plan = allocation.plan(0, 0, problem.settings.unit)

    def learn(self, task: Task) -> None:
        """Absorb the task, with class names as labels; the first one creates the memory."""
        if not len(self.arrival):
            path, settings = self.memory.path, self.problem.settings
            if not self.memory.file.exists():
                self.memory = Memory.create(path, settings)
            elif self.memory.n or self.memory.settings != settings:  # not from a run killed in its first task
                raise CannotWrite(f"{path} exists and belongs to another run; choose another folder")
        names = [self.problem.classes[number] for number in task.y]
        self.arrival = np.append(self.arrival, np.arange(len(self.arrival), len(self.arrival) + len(task)))
        with self.problem.clock("absorb"):
            absorbed = self.memory.absorb(task.x, names, again=True, progress=self.problem.progress)
        self._plan = absorbed.plan
        for slot, order in absorbed.orders.items():
            held = self.arrival[slot.start - 1 : slot.stop]
            held[:] = held[order]
        self.classifier = None

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Class numbers (n,)."""
        classifier, numbers = self._trained()
        predicted: NDArray[np.int64] = numbers[classifier.predict_proba(x).argmax(axis=1)]
        return predicted

    def nbytes(self) -> int:
        """Bytes of the memory file at rest, without its global model, which can be retrained."""
        return self.memory.nbytes()

    def classifier_bytes(self) -> int:
        """Bytes of the global model in the file."""
        return self.memory.file.usage().classifier

    def state(self) -> State:
        """The bytes of the memory file, its digest, and the order in which its samples arrived."""
        state = {f"{BOOKKEEPING}arrival": torch.from_numpy(self.arrival)}
        if len(self.arrival):
            state["memory"] = torch.from_numpy(np.fromfile(self.memory.path, np.uint8))
            state[f"{BOOKKEEPING}digest"] = torch.tensor(list(bytes.fromhex(self.memory.digest)))
        return state

    def restore(self, state: State) -> None:
        """The inverse of `state`; a different memory in the folder is replaced."""
        self.arrival = state[f"{BOOKKEEPING}arrival"].numpy().copy()
        if self._holds(state):
            return  # it may have staged fits of the interrupted task, which a copy would lose
        path = self.memory.path
        for old in (path, path.with_name(f"{path.name}-journal")):
            old.unlink(missing_ok=True)
        if "memory" in state:
            write_atomically(path, state["memory"].numpy().tobytes())
        self.memory = Memory(path)

    def replayed(self) -> Replayed:
        """Every sample, decoded."""
        now = self.memory.snapshot()
        x, _ = now.everything(self.problem.progress)
        levels = np.full(now.n, -1)
        for level in now.levels:
            levels[level.slot.start - 1 : level.slot.stop] = level.slot.level
        return Replayed(x.numpy(), self.arrival, generations(now.runs), levels)

    def effort(self) -> Effort:
        """What absorbing the last task cost."""
        return Effort(
            trained=sum(slot.samples for slot in self._plan.train),
            replayed=sum(slot.samples for slot in self._plan.retire),
            models=len(self._plan.keep + self._plan.train),
        )

    def trap(self, x: NDArray[np.uint8], y: NDArray[np.int64]) -> diagnostics.Trap:
        """Whether the global model recognises classes by the distortions of their decoders."""
        classifier, numbers = self._trained()
        own = np.full(len(self.problem.classes), -1)
        own[numbers] = np.arange(len(numbers))
        now = self.memory.snapshot()
        return diagnostics.measure(now, classifier.network, x, own[y], self.problem.progress)

    def _holds(self, state: State) -> bool:
        """Whether the memory in the folder is the one in `state`."""
        try:
            if self.memory.file.problems():
                return False
            if "memory" in state:
                return self.memory.digest == bytes(state[f"{BOOKKEEPING}digest"].tolist()).hex()
            return not self.memory.n and self.memory.settings == self.problem.settings
        except (NotAMemory, Damaged):
            return False

    def _trained(self) -> tuple[Classifier, NDArray[np.int64]]:
        """The global model, and the problem's number of each of its classes."""
        if not len(self.arrival):
            raise NotTrained("LogCL has seen no task yet; learn one first")
        if self.classifier is None:
            with suppress(NotTrained, Damaged):  # a killed run may already have trained it
                self.classifier = Classifier.load(self.memory)
        if self.classifier is None or not self.classifier.is_current(self.memory):
            with self.problem.clock("train"):
                self.classifier = Classifier.train(
                    self.memory, recipe=self.problem.settings.classifier, progress=self.problem.progress
                )
        numbers = [self.problem.classes.index(str(name)) for name in self.classifier.classes]
        return self.classifier, np.array(numbers)
