"""Gradient-based sample selection, the greedy form (Aljundi et al. 2019a): keep what pulls elsewhere."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from logcl.core.settings import Frozen
from logcl.methods.parts.exemplars import Exemplars
from logcl.methods.parts.protocol import Method, Part, Problem, State
from logcl.methods.parts.rehearsal import Batch, rehearse
from logcl.methods.parts.solver import Solver, evaluating
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.networks import ImageClassifier
from logcl.streams import Task

_FIRST = 0.1  # the score of samples that nothing was there to compare with; the authors' code


class GSSOptions(Frozen):
    """Hyperparameters of GSS."""

    batches: int = Field(10, ge=1)
    """Batches of kept samples that a new one is compared with, by their mean gradients; the authors' code."""
    batch_size: int = Field(10, ge=1)
    """Samples in each of them; the authors' code."""


class Scores:
    """How alike each kept sample was to those kept before it: 0 opposite, 2 the same."""

    def __init__(self) -> None:
        self.values = torch.empty(0)

    def state(self) -> State:
        """One number for each kept sample."""
        return {"gss.scores": self.values}

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.values = state["gss.scores"].clone()


class GSS(Method):
    """Experience replay from a buffer in which samples are kept whose gradients differ from the others'."""

    Options = GSSOptions
    options: GSSOptions
    keeps = "budget"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        self.buffer = Exemplars(problem)
        self.scores = Scores()

    def learn(self, task: Task) -> None:
        """One pass of the stream through the selection, as many training passes as the recipe has."""

        def draw(_x: Tensor, y: Tensor) -> Batch:
            rows = self.buffer.draw(len(y))
            return self.buffer.x[rows], self.buffer.y[rows]

        rehearse(self.solver, task, draw, self._select)

    def parts(self) -> tuple[Part, ...]:
        """The network, the buffer and its scores."""
        return self.solver, self.buffer, self.scores

    def _select(self, x: Tensor, y: Tensor) -> None:
        """Score c = max cosine + 1 against some kept samples. While there is room all are kept; then one with
        c < 1 may replace a kept sample i, drawn with chance C_i / ΣC, with chance C_i / (C_i + c).
        """
        size = min(self.options.batch_size, len(self.buffer))
        score = torch.full((len(y),), _FIRST)
        if size:
            rows = self.buffer.draw(self.options.batches * size)
            rows = rows[: len(rows) // size * size]
            network = self.solver.network
            with evaluating(network), torch.no_grad():
                alike = gradient_cosines(network, (x, y), (self.buffer.x[rows], self.buffer.y[rows]), size)
            score = alike.max(dim=1).values.cpu() + 1
        free = min(self.buffer.capacity - len(self.buffer), len(y))
        if free:
            self.buffer.append(x[:free], y[:free])
            self.scores.values = torch.cat([self.scores.values, score[:free]])
        rows = free + (score[free:] < 1).nonzero()[:, 0]
        if not len(rows):
            return
        chance = self.scores.values.clamp(min=1e-6)
        rows = rows[: len(chance)]
        places = torch.multinomial(chance, len(rows))
        taken = torch.rand(len(rows)) < chance[places] / (chance[places] + score[rows])
        self.buffer.replace(places[taken], x[rows][taken], y[rows][taken])
        self.scores.values[places[taken]] = score[rows][taken]


def gradient_cosines(network: ImageClassifier, ours: Batch, theirs: Batch, size: int) -> Tensor:
    """Cosine between the gradient of each of our samples and the mean one of each `size` of theirs, (n, m).

    By the last layer's weights: there the gradient of a sample is the outer product of δ = softmax - one-hot
    and the embedding (with a 1 for the bias), so that inner products factor and none is ever written out.
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
    """δ (n, classes) and embedding with a 1 (n, features + 1)."""
    embedding = network.embed(to_unit(x.to(choose_device())))
    delta = network.head(embedding).softmax(dim=1)
    delta[torch.arange(len(y)), y] -= 1
    return delta, nn.functional.pad(embedding, (0, 1), value=1.0)
