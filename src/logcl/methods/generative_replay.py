"""Naive generative replay, the paper's baseline: a single model is refitted on everything it replays.

BinPlay (Deja et al. 2021) is the same with a binary autoencoder whose codes are computed from sample indices.
"""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np
import torch

from logcl.allocation import Slot
from logcl.codecs import registry
from logcl.codecs.index import IndexSettings
from logcl.memory import samples
from logcl.memory.choosing import choose
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, parse
from logcl.methods.parts.protocol import Effort, Replayed
from logcl.methods.parts.solver import Batch, Retrained
from logcl.streams import Task


class GenerativeReplay(Retrained):
    """LogCL without its levels: the same decoder, codes and labels, but each task re-encodes all samples.

    After T tasks the first samples have been re-encoded T - 1 times; LogCL's bound is log2(n / L).
    """

    name = "generative-replay"
    summary = "one generative model, refitted on everything it replays"
    keeps = "all"
    kept = (*Retrained.kept, "model", "weights", "codec")
    bookkeeping = ("arrival",)
    model = torch.empty(0, dtype=torch.uint8)
    """The bytes of the local model, as a memory file would store them."""
    weights = torch.empty(0, dtype=torch.uint8)
    """The bytes of its codec's weights, if it has any."""
    codec = torch.empty(0, dtype=torch.uint8)
    """The settings of its codec as JSON: the codec may be chosen on the first task."""
    arrival = torch.empty(0, dtype=torch.int64)
    _new = 0  # samples of the last task

    def model_settings(self) -> Settings:
        """The model's settings: those of LogCL's local models."""
        return self.problem.settings

    def learn(self, task: Task) -> None:
        """Refit the model on the task and on replay of everything before."""
        settings, progress = self.model_settings(), self.problem.progress
        with self.problem.clock("absorb"):
            new = samples.raw(np.asarray(task.x), np.asarray(task.y), len(self.arrival) + 1)
            earlier = [self.local_model()] if len(self.arrival) else []
            slot = Slot(0, 1, len(self.arrival) + len(new))
            if not earlier:
                chosen = choose(settings, new.x, new.y, progress)[0].codec
                self.codec = torch.frombuffer(bytearray(chosen.model_dump_json().encode()), dtype=torch.uint8)
            codec = json.loads(self.codec.numpy().tobytes())
            settings = parse({**settings.model_dump(), "codec": codec})
            starts = [model.codec for model in earlier]
            model, order = LocalModel.fit(slot, new, settings, 0, progress, starts, earlier)
            self.model = torch.frombuffer(bytearray(model.to_bytes()), dtype=torch.uint8)
            if model.codec.weights():
                self.weights = torch.frombuffer(bytearray(model.codec.to_bytes()), dtype=torch.uint8)
        self.arrival = torch.cat([self.arrival, torch.arange(len(self.arrival), slot.stop)])[order]
        self._new = len(task)
        self.outdated()

    def local_model(self) -> LocalModel:
        """The model of all samples so far."""
        name, codecs, weights = "the generative model", {}, self.weights.numpy().tobytes()
        if weights:
            codecs[sha256(weights).hexdigest()] = registry.from_bytes(weights, name)
        return LocalModel.from_bytes(self.model.numpy().tobytes(), codecs, name)

    def everything(self) -> Batch:
        """Images and class numbers, decoded."""
        images, labels = self.local_model().replay()
        return images, torch.from_numpy(labels)

    def replayed(self) -> Replayed:
        """Every sample, decoded, and how often it was re-encoded."""
        model = self.local_model()
        generations = samples.generations(model.runs)
        return Replayed(model.replay()[0].numpy(), self.arrival.numpy(), generations, 0 * generations)

    def effort(self) -> Effort:
        """Every task fits all samples, and replays all but the new ones."""
        held = len(self.arrival)
        return Effort(trained=held, replayed=held - self._new, models=1 if held else 0)


class BinPlay(GenerativeReplay):
    """Keeps a single decoder: sample i is what it decodes from code c(i).

    With the preset `paper` it has the published networks and hyperparameters, which take days on a CPU. With
    other presets it has the decoder of `paper-cpu`, whose codes also depend on the index alone.
    """

    name = "binplay"
    summary = "one decoder with codes from sample indices"

    def model_settings(self) -> Settings:
        """Settings whose codes are computed from the sample index."""
        settings = self.problem.settings
        if isinstance(settings.codec, IndexSettings):
            return settings
        published = preset("paper-cpu", settings.image_shape)
        return settings.model_copy(update={"codec": published.codec, "labels": published.labels})
