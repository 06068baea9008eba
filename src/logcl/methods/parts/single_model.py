"""A single generative model of everything, as before LogCL: each task re-encodes every sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from logcl.allocation import Slot
from logcl.codecs.settings import GeneratorSettings
from logcl.memory import samples
from logcl.memory.local_model import LocalModel
from logcl.methods.parts.protocol import BOOKKEEPING, Effort, Method, Problem, Replayed, State
from logcl.methods.parts.solver import Retrained
from logcl.streams import Task


class SingleModel(Method):
    """All samples so far in one local model, the same as LogCL's, at its full size.

    The classifier is trained on replay when a prediction is needed.
    """

    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Retrained = Retrained(problem, self.everything)
        self.model: LocalModel | None = None
        self.arrival = np.empty(0, dtype=np.int64)
        self._new = 0

    def generator(self) -> GeneratorSettings:
        """The model's settings: those of LogCL's local models."""
        return self.problem.settings.generator

    def learn(self, task: Task) -> None:
        """Refit the model on the task and on replay of everything before."""
        settings = self.problem.settings.model_copy(update={"generator": self.generator()})
        with self.problem.clock("absorb"):
            parts = [samples.raw(np.asarray(task.x), np.asarray(task.y))]
            if self.model is not None:
                parts.insert(0, self.model.samples())
            together = samples.concatenate(parts)
            slot = Slot(0, 1, len(together))
            self.model, order = LocalModel.fit(slot, together, settings, 0, self.problem.progress, self.model)
        self.arrival = np.append(self.arrival, np.arange(len(self.arrival), len(together)))[order]
        self._new = len(task)
        self.solver.outdated()

    def everything(self) -> tuple[Tensor, Tensor]:
        """Images and class numbers, decoded."""
        assert self.model is not None
        images, labels = self.model.replay()
        return images, torch.from_numpy(labels)

    def replayed(self) -> Replayed:
        """Every sample, decoded, and how often it was re-encoded."""
        assert self.model is not None
        generations = samples.generations(self.model.runs)
        return Replayed(self.everything()[0].numpy(), self.arrival, generations, np.zeros_like(generations))

    def effort(self) -> Effort:
        """Every task fits all samples, and replays all but the new ones."""
        held = len(self.arrival)
        return Effort(trained=held, replayed=held - self._new, models=1 if held else 0)

    def state(self) -> State:
        """The model, in the bytes that a memory file would store, and the order of arrival."""
        blob = self.model.to_bytes() if self.model is not None else b""
        return super().state() | {
            "model": torch.from_numpy(np.frombuffer(blob, np.uint8).copy()),
            f"{BOOKKEEPING}arrival": torch.from_numpy(self.arrival),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        super().restore(state)
        blob = state["model"].numpy().tobytes()
        self.model = LocalModel.from_bytes(blob, "the generative model") if blob else None
        self.arrival = state[f"{BOOKKEEPING}arrival"].numpy().copy()
