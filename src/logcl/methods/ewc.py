"""Elastic weight consolidation (Kirkpatrick et al. 2017), and its online form (Schwarz et al. 2018)."""

from __future__ import annotations

import math
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from logcl.core.settings import Frozen
from logcl.methods.parts.protocol import Method, Problem, State
from logcl.methods.parts.solver import Solver, flat_weights, tensors
from logcl.nn.images import to_unit
from logcl.nn.training import seeded
from logcl.streams import Task

_GRADIENTS = 2**26  # entries of per-sample gradients in memory at once


class EWCOptions(Frozen):
    """Hyperparameters of EWC."""

    importance: float = Field(1e6, ge=0)
    """λ: weight of the penalty against the new task's loss. Large, because the Fisher information of a
    confident network is tiny; van de Ven et al. 2022 tried up to 1e9."""
    fisher_samples: int = Field(1000, ge=1)
    """Samples per task from which the diagonal of the Fisher information is estimated."""
    online: bool = False
    """One running penalty instead of one per task: memory stops growing."""
    decay: float = Field(1.0, ge=0, le=1)
    """γ: how much of the old Fisher information remains after each task; online only."""


class OnlineEWCOptions(EWCOptions):
    """Hyperparameters of online EWC."""

    online: bool = True
    """One running penalty instead of one per task: memory stops growing."""


class Consolidated:
    """θ*_t and F_t, one row per penalty: the weights to stay near, and how strictly."""

    def __init__(self) -> None:
        self.means = torch.empty(0, 0)
        self.fisher = torch.empty(0, 0)

    def penalty(self, weights: Tensor, importance: float = 1.0, most: float = math.inf) -> Tensor:
        """½ Σ_t Σ_i λ F_t,i (θ_i - θ*_t,i)², with Σ_t λ F_t,i limited to `most`."""
        if not len(self.means):
            return torch.zeros((), device=weights.device)
        stiffness = (importance * self.fisher).clamp(max=most / len(self.fisher))
        return 0.5 * (stiffness * (weights - self.means).square()).sum()

    def add(self, weights: Tensor, fisher: Tensor) -> None:
        """Add a penalty around these weights."""
        self.means = torch.cat([self.means.reshape(-1, len(weights)).to(weights), weights[None]])
        self.fisher = torch.cat([self.fisher.reshape(-1, len(fisher)).to(fisher), fisher[None]])

    def merge(self, weights: Tensor, fisher: Tensor, decay: float) -> None:
        """F ← γ F + F_t: a single penalty, around the newest weights."""
        fisher = fisher + decay * self.fisher.to(fisher).sum(dim=0) if len(self.fisher) else fisher
        self.means, self.fisher = weights[None], fisher[None]

    def state(self) -> State:
        """Weights and Fisher information."""
        return {"ewc.means": self.means.cpu(), "ewc.fisher": self.fisher.cpu()}

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.means, self.fisher = state["ewc.means"].clone(), state["ewc.fisher"].clone()


class EWC(Method):
    """loss = cross-entropy of the task + λ ½ Σ_t F_t (θ - θ*_t)²; F is the diagonal Fisher information."""

    name = "ewc"
    summary = "elastic weight consolidation"
    Options = EWCOptions
    options: EWCOptions

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        self.consolidated = Consolidated()

    def learn(self, task: Task) -> None:
        """Train on the task under the penalties of all earlier ones, then add its own."""
        images, labels = tensors(task)
        self.solver.see(labels)
        network, recipe = self.solver.network, self.problem.settings.classifier
        # With a stiffer penalty than this, SGD overshoots further with each step; Adam does not.
        most = math.inf if recipe.optimiser == "adam" else (1 - recipe.momentum) / recipe.learning_rate

        def loss(rows: Tensor) -> Tensor:
            penalty = self.consolidated.penalty(flat_weights(network), self.options.importance, most)
            return self.solver.loss(images[rows], labels[rows]) + penalty

        self.solver.train(len(labels), loss)
        work = self.problem.work(self.solver.fits, 1)
        some = images[torch.randperm(len(images), generator=work.generator)[: self.options.fisher_samples]]
        with self.problem.clock("train"), seeded(work.generator):
            fisher = fisher_information(network, some)
        weights = flat_weights(network).detach()
        if self.options.online:
            self.consolidated.merge(weights, fisher, self.options.decay)
        else:
            self.consolidated.add(weights, fisher)


class OnlineEWC(EWC):
    """EWC with a single penalty: F ← γ F + F_t, around the newest weights."""

    name = "ewc-online"
    summary = "elastic weight consolidation with one running penalty"
    Options = OnlineEWCOptions


def fisher_information(network: nn.Module, pixels: Tensor) -> Tensor:
    """Mean squared gradient of log p(y | x) over uint8 images, y drawn from the network's own prediction.

    This is the true Fisher information; with the true labels it would be the "empirical" one.
    """
    weights = {name: value.detach() for name, value in network.named_parameters()}
    buffers = dict(network.named_buffers())

    def log_likelihood(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        scores = functional_call(network, (weights, buffers), (image[None],))
        return -nn.functional.cross_entropy(scores, label[None])

    gradients = vmap(grad(log_likelihood), in_dims=(None, 0, 0))
    size = sum(value.numel() for value in weights.values())
    total = torch.zeros(size)
    for block in to_unit(pixels).split(min(max(_GRADIENTS // size, 1), 256)):
        images = block.to(next(iter(weights.values())).device)
        with torch.no_grad():
            drawn = torch.multinomial(network(images).softmax(dim=1), 1)[:, 0]
        squares = [value.square().sum(dim=0) for value in gradients(weights, images, drawn).values()]
        total = total.to(images) + torch.cat([value.reshape(-1) for value in squares])
    return total / len(pixels)
