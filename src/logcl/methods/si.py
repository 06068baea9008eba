"""Synaptic intelligence, SI (Zenke et al. 2017): protect the weights that reduced earlier losses most."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from logcl.core.settings import Frozen
from logcl.methods.parts.protocol import Method, Problem, State
from logcl.methods.parts.solver import Solver, flat_weights, tensors
from logcl.streams import Task


class SIOptions(Frozen):
    """Hyperparameters of SI."""

    strength: float = Field(0.1, ge=0)
    """c: weight of the penalty against the new task's loss; 0.1 is the paper's for split MNIST."""
    damping: float = Field(0.1, gt=0)
    """ξ: bounds the importance of weights that hardly moved; the paper's."""


class SI(Method):
    """loss = cross-entropy of the task + c Σ Ω (θ - θ~)²; Ω is how much a weight reduced earlier losses."""

    name = "si"
    summary = "synaptic intelligence"
    Options = SIOptions
    options: SIOptions

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        self.importance = torch.empty(0)
        """Ω, one number per weight."""
        self.anchor = torch.empty(0)
        """θ~, the weights after the last task."""

    def learn(self, task: Task) -> None:
        """Train and accumulate ω_i = -Σ_steps g_i Δθ_i, where g is the gradient without the penalty's."""
        images, labels = tensors(task)
        self.solver.see(labels)
        network, strength = self.solver.network, self.options.strength
        start = before = flat_weights(network).detach()
        contribution = torch.zeros_like(start)

        def loss(rows: Tensor) -> Tensor:
            penalty = self._penalty(flat_weights(network))
            return self.solver.loss(images[rows], labels[rows]) + strength * penalty

        def after_step() -> None:
            nonlocal before
            gradients = [value.grad for value in network.parameters() if value.grad is not None]
            gradient = torch.cat([value.reshape(-1) for value in gradients])
            now = flat_weights(network).detach()
            contribution.sub_((gradient - strength * self._slope(before)) * (now - before))
            before = now

        self.solver.train(len(labels), loss, after_step)
        self._consolidate(start, before, contribution)

    def _penalty(self, weights: Tensor) -> Tensor:
        """Σ_i Ω_i (θ_i - θ~_i)²."""
        if not len(self.anchor):
            return torch.zeros((), device=weights.device)
        return (self.importance * (weights - self.anchor).square()).sum()

    def _slope(self, weights: Tensor) -> Tensor:
        """The gradient of the penalty."""
        if not len(self.anchor):
            return torch.zeros_like(weights)
        return 2 * self.importance * (weights - self.anchor)

    def _consolidate(self, start: Tensor, end: Tensor, contribution: Tensor) -> None:
        """Ω_i ← Ω_i + ω_i / ((θ_i - θ_i,start)² + ξ), without negative contributions."""
        gained = contribution.clamp(min=0) / ((end - start).square() + self.options.damping)
        self.importance = self.importance + gained if len(self.importance) else gained
        self.anchor = end

    def state(self) -> State:
        """The network, Ω and θ~."""
        return super().state() | {"si.importance": self.importance.cpu(), "si.anchor": self.anchor.cpu()}

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        super().restore(state)
        self.importance, self.anchor = state["si.importance"].clone(), state["si.anchor"].clone()
