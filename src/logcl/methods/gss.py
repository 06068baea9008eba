"""Gradient-based sample selection, GSS-Greedy (Aljundi et al. 2019a): keep samples with unlike gradients."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from logcl.core.settings import Frozen
from logcl.methods.parts.rehearsal import Rehearsal
from logcl.methods.parts.solver import Batch
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.networks import ImageClassifier

_FIRST = 0.1  # score of samples when the buffer is empty, as in the authors' code


class GSSOptions(Frozen):
    """Hyperparameters of GSS."""

    batches: int = Field(10, ge=1)
    """Batches of kept samples whose mean gradients are compared with a new sample's; the authors' code."""
    batch_size: int = Field(10, ge=1)
    """Samples per such batch; the authors' code."""


class GSS(Rehearsal):
    """Experience replay from a buffer that prefers samples with gradients unlike those of the others."""

    name = "gss"
    summary = "experience replay of samples with different gradients"
    Options = GSSOptions
    options: GSSOptions
    kept = (*Rehearsal.kept, "similarity")
    similarity = torch.empty(0)
    """C: how similar each kept sample was to earlier ones, from 0 (opposite gradient) to 2 (the same)."""

    def offer(self, x: Tensor, y: Tensor) -> None:
        """Algorithm 2, with the score c = max cosine + 1 against some kept samples.

        While there is room, every sample is kept. Then a sample with c < 1 picks a kept one, i ~ C_i / ΣC,
        and replaces it with probability C_i / (C_i + c).
        """
        size = min(self.options.batch_size, len(self.buffer))
        score = torch.full((len(y),), _FIRST)
        if size:
            rows = self.buffer.draw(self.options.batches * size)
            rows = rows[: len(rows) // size * size]
            others = self.buffer.x[rows], self.buffer.y[rows]
            alike = gradient_cosines(self.network, (x, y), others, size)
            score = alike.max(dim=1).values.cpu() + 1
        free = min(self.buffer.capacity - len(self.buffer), len(y))
        if free:
            self.buffer.append(x[:free], y[:free])
            self.similarity = torch.cat([self.similarity, score[:free]])
        rows = free + (score[free:] < 1).nonzero()[:, 0]
        if not len(rows):
            return
        chance = self.similarity.clamp(min=1e-6)
        rows = rows[: len(chance)]
        places = torch.multinomial(chance, len(rows))
        taken = torch.rand(len(rows)) < chance[places] / (chance[places] + score[rows])
        self.buffer.replace(places[taken], x[rows][taken], y[rows][taken])
        self.similarity[places[taken]] = score[rows][taken]


@torch.no_grad()
def gradient_cosines(network: ImageClassifier, ours: Batch, theirs: Batch, size: int) -> Tensor:
    """Cosines (n, m) between the gradients of n samples and the mean gradients of m batches of `size` others.

    Gradients of the last layer only: there they are the outer product of δ = softmax - one-hot and the
    embedding (with a 1 for the bias), so inner products factor and no gradient has to be computed in full.
    """
    delta, feature = _factors(network, *ours)
    their_delta, their_feature = _factors(network, *theirs)
    products = (delta @ their_delta.T) * (feature @ their_feature.T)
    with_mean = products.unflatten(1, (-1, size)).mean(dim=2)
    length = delta.norm(dim=1) * feature.norm(dim=1)
    among = (their_delta @ their_delta.T) * (their_feature @ their_feature.T)
    grouped = among.unflatten(0, (-1, size)).unflatten(2, (-1, size)).mean(dim=(1, 3))
    cosines: Tensor = with_mean / (length[:, None] * grouped.diagonal().clamp(min=0).sqrt()).clamp(min=1e-12)
    return cosines


def _factors(network: ImageClassifier, x: Tensor, y: Tensor) -> Batch:
    """δ (n, classes) and the embedding with a 1 (n, features + 1)."""
    embedding = network.embed(to_unit(x.to(choose_device())))
    delta = network.head(embedding).softmax(dim=1)
    delta[torch.arange(len(y)), y] -= 1
    return delta, nn.functional.pad(embedding, (0, 1), value=1.0)
