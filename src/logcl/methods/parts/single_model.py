"""One generative model for everything: what the paper improves on. Each task re-encodes every sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from logcl.allocation import Slot
from logcl.codecs.settings import GeneratorSettings
from logcl.core.progress import Progress
from logcl.memory import samples
from logcl.memory.local_model import LocalModel
from logcl.memory.settings import Settings
from logcl.methods.parts.protocol import BOOKKEEPING, Effort, Method, Part, Problem, Replayed, State
from logcl.methods.parts.solver import Retrained
from logcl.streams import Task


class Everything:
    """All samples so far inside one local model, the same as LogCL's, at its full size."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.model: LocalModel | None = None
        self.arrival = np.empty(0, dtype=np.int64)

    def absorb(self, task: Task, progress: Progress) -> None:
        """Train the model again, on the task and on replay of all that came before."""
        parts = [samples.raw(np.asarray(task.x), np.asarray(task.y))]
        if self.model is not None:
            parts.insert(0, self.model.samples())
        together = samples.concatenate(parts)
        slot = Slot(0, 1, len(together))
        self.model, order = LocalModel.fit(slot, together, self.settings, 0, progress, self.model)
        self.arrival = np.append(self.arrival, np.arange(len(self.arrival), len(together)))[order]

    def everything(self) -> tuple[Tensor, Tensor]:
        """Images and class numbers, decoded."""
        assert self.model is not None
        images, labels = self.model.replay()
        return images, torch.from_numpy(labels)

    def replayed(self) -> Replayed:
        """Every sample, decoded, and how often it was re-encoded."""
        assert self.model is not None
        images, _ = self.model.replay()
        generations = samples.generations(self.model.runs)
        return Replayed(images.numpy(), self.arrival, generations, np.zeros_like(generations))

    def state(self) -> State:
        """The model as the memory file would keep it."""
        blob = self.model.to_bytes() if self.model is not None else b""
        return {
            "model": torch.from_numpy(np.frombuffer(blob, np.uint8).copy()),
            f"{BOOKKEEPING}arrival": torch.from_numpy(self.arrival),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        blob = state["model"].numpy().tobytes()
        self.model = LocalModel.from_bytes(blob, "the generative model") if blob else None
        self.arrival = state[f"{BOOKKEEPING}arrival"].numpy().copy()


class SingleModel(Method):
    """Retrains one model on everything it regenerates; a classifier is trained on replay when asked."""

    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        settings = problem.settings.model_copy(update={"generator": self.generator()})
        self.memory = Everything(settings)
        self.solver: Retrained = Retrained(problem, self.memory.everything)
        self._new = 0

    def generator(self) -> GeneratorSettings:
        """Which model: the one that LogCL would use."""
        return self.problem.settings.generator

    def learn(self, task: Task) -> None:
        """Re-encode everything, with the task."""
        with self.problem.clock("absorb"):
            self.memory.absorb(task, self.problem.progress)
        self._new = len(task)
        self.solver.outdated()

    def replayed(self) -> Replayed:
        """Every sample, decoded."""
        return self.memory.replayed()

    def effort(self) -> Effort:
        """Everything is fitted again, and all but the new samples are replayed for it."""
        held = len(self.memory.arrival)
        return Effort(trained=held, replayed=held - self._new, models=1 if held else 0)

    def parts(self) -> tuple[Part, ...]:
        """The model; the classifier is trained again."""
        return self.memory, self.solver
