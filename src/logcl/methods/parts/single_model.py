"""A single generative model of everything, as before LogCL: each task re-encodes every sample."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import torch

from logcl.allocation import Slot
from logcl.codecs import registry
from logcl.memory import samples
from logcl.memory.local_model import LocalModel
from logcl.memory.settings import Settings
from logcl.methods.parts.protocol import Effort, Replayed, State
from logcl.methods.parts.solver import Batch, Retrained
from logcl.streams import Task


class SingleModel(Retrained):
    """All samples so far in one local model, the same as LogCL's, at its full size.

    The classifier is trained on replay when a prediction is needed.
    """

    keeps = "all"
    bookkeeping = ("arrival",)
    model: LocalModel | None = None
    arrival = torch.empty(0, dtype=torch.int64)
    _new = 0  # samples of the last task

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
        self.arrival = torch.cat([self.arrival, torch.arange(len(self.arrival), len(together))])[order]
        self._new = len(task)
        self.outdated()

    def everything(self) -> Batch:
        """Images and class numbers, decoded."""
        assert self.model is not None
        images, labels = self.model.replay()
        return images, torch.from_numpy(labels)

    def replayed(self) -> Replayed:
        """Every sample, decoded, and how often it was re-encoded."""
        assert self.model is not None
        generations = samples.generations(self.model.runs)
        images, arrival = self.everything()[0].numpy(), self.arrival.numpy()
        return Replayed(images, arrival, generations, np.zeros_like(generations))

    def effort(self) -> Effort:
        """Every task fits all samples, and replays all but the new ones."""
        held = len(self.arrival)
        return Effort(trained=held, replayed=held - self._new, models=1 if held else 0)

    def state(self) -> State:
        """The model, in the bytes that a memory file would store, and the order of arrival."""
        state = super().state()
        if self.model is not None:
            files = {"model": self.model.to_bytes()}
            if self.model.codec.weights():
                files["weights"] = self.model.codec.to_bytes()
            state |= {
                name: torch.frombuffer(bytearray(blob), dtype=torch.uint8) for name, blob in files.items()
            }
        return state

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        super().restore(state)
        files = {name: state[name].numpy().tobytes() for name in ("weights", "model") if name in state}
        name, codecs = "the generative model", {}
        if "weights" in files:
            codecs[sha256(files["weights"]).hexdigest()] = registry.from_bytes(files["weights"], name)
        if "model" in files:
            self.model = LocalModel.from_bytes(files["model"], codecs, name)
