"""Elastic weight consolidation (Kirkpatrick et al. 2017), and its online form (Schwarz et al. 2018)."""

from __future__ import annotations

import math
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from logcl.core.settings import Frozen
from logcl.methods.parts.protocol import Method, Part, Problem, State
from logcl.methods.parts.solver import Solver, flat_weights, tensors
from logcl.nn.images import to_unit
from logcl.nn.training import seeded
from logcl.streams import Task

_GRADIENTS = 2**26  # how many single gradients are held at once


class EWCOptions(Frozen):
    """Hyperparameters of EWC."""

    importance: float = Field(1e6, ge=0)
    """λ: how much staying near the old weights counts against the new task. Large, because the Fisher
    information of a network that is sure of its answers is tiny; van de Ven et al. 2022 tried up to 1e9."""
    fisher_samples: int = Field(1000, ge=1)
    """Samples of a task that the diagonal of the Fisher information is estimated from."""
    online: bool = False
    """One running penalty instead of one for each task: memory no longer grows."""
    decay: float = Field(1.0, ge=0, le=1)
    """γ: how much of the old Fisher information stays after each task; online only."""


class Consolidated:
    """For each penalty the weights it pulls to, and how strongly each of them is held."""

    def __init__(self) -> None:
        self.means = torch.empty(0, 0)
        self.fisher = torch.empty(0, 0)

    def penalty(self, weights: Tensor, importance: float = 1.0, most: float = math.inf) -> Tensor:
        """½ Σ_t Σ_i λ F_t,i (θ_i - θ*_t,i)²; all together hold no weight more strongly than `most`."""
        if not len(self.means):
            return torch.zeros((), device=weights.device)
        stiffness = (importance * self.fisher).clamp(max=most / len(self.fisher))
        return 0.5 * (stiffness * (weights - self.means).square()).sum()

    def add(self, weights: Tensor, fisher: Tensor) -> None:
        """One more penalty, at these weights."""
        self.means = torch.cat([self.means.reshape(-1, len(weights)).to(weights), weights[None]])
        self.fisher = torch.cat([self.fisher.reshape(-1, len(fisher)).to(fisher), fisher[None]])

    def merge(self, weights: Tensor, fisher: Tensor, decay: float) -> None:
        """F ← γ F + F_t, at the newest weights only."""
        fisher = fisher + decay * self.fisher.to(fisher).sum(dim=0) if len(self.fisher) else fisher
        self.means, self.fisher = weights[None], fisher[None]

    def state(self) -> State:
        """Weights and Fisher information, one row for each penalty."""
        return {"ewc.means": self.means.cpu(), "ewc.fisher": self.fisher.cpu()}

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.means, self.fisher = state["ewc.means"].clone(), state["ewc.fisher"].clone()


class EWC(Method):
    """loss = cross-entropy of the task + λ ½ Σ_t F_t (θ - θ*_t)²; F is the diagonal Fisher information."""

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
        network = self.solver.network

        most = self._most_stiffness()

        def loss(rows: Tensor) -> Tensor:
            held = self.consolidated.penalty(flat_weights(network), self.options.importance, most)
            return self.solver.loss(images[rows], labels[rows]) + held

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

    def _most_stiffness(self) -> float:
        """Plain gradient steps on a stiffer spring than this overshoot further each time; Adam's do not."""
        recipe = self.problem.settings.classifier
        return math.inf if recipe.optimiser == "adam" else (1 - recipe.momentum) / recipe.learning_rate

    def parts(self) -> tuple[Part, ...]:
        """The network, old weights and Fisher information."""
        return self.solver, self.consolidated


def fisher_information(network: nn.Module, pixels: Tensor) -> Tensor:
    """Mean squared gradient of log p(y | x) over uint8 images, y drawn from the network's own answer.

    That is the Fisher information itself; taking the true labels instead would be the "empirical" one.
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
        of_block = gradients(weights, images, drawn)
        total = total.to(images) + torch.cat(
            [value.square().sum(dim=0).reshape(-1) for value in of_block.values()]
        )
    return total / len(pixels)
