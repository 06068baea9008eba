"""A single generative model of everything, as before LogCL: each task re-encodes every sample."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from logcl.allocation import Slot
from logcl.codecs import registry
from logcl.memory import samples
from logcl.memory.local_model import LocalModel
from logcl.memory.settings import Settings
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

    def model_settings(self) -> Settings:
        """The model's settings: those of LogCL's local models."""
        return self.problem.settings

    def learn(self, task: Task) -> None:
        """Refit the model on the task and on replay of everything before."""
        settings, progress = self.model_settings(), self.problem.progress
        with self.problem.clock("absorb"):
            together = samples.raw(np.asarray(task.x), np.asarray(task.y), len(self.arrival) + 1)
            starts = []
            if self.model is not None:
                together = samples.concatenate([self.model.samples(), together])
                starts.append(self.model.codec)
            slot = Slot(0, 1, len(together))
            self.model, order = LocalModel.fit(slot, together, settings, 0, progress, starts)
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
        blobs = {"model": b"", "weights": b""}
        if self.model is not None:
            blobs["model"] = self.model.to_bytes()
            blobs["weights"] = self.model.codec.to_bytes() if self.model.codec.weights() else b""
        arrays = {name: np.frombuffer(blob, np.uint8).copy() for name, blob in blobs.items()}
        arrays[f"{BOOKKEEPING}arrival"] = self.arrival
        return super().state() | {name: torch.from_numpy(array) for name, array in arrays.items()}

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        super().restore(state)
        blob, weights = (state[name].numpy().tobytes() for name in ("model", "weights"))
        name = "the generative model"
        codecs = {sha256(weights).hexdigest(): registry.from_bytes(weights, name)} if weights else {}
        self.model = LocalModel.from_bytes(blob, codecs, name) if blob else None
        self.arrival = state[f"{BOOKKEEPING}arrival"].numpy().copy()
