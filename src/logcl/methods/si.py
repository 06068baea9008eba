"""Synaptic intelligence (Zenke et al. 2017): weights that did much for earlier losses are held."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from logcl.core.settings import Frozen
from logcl.methods.parts.protocol import Method, Part, Problem, State
from logcl.methods.parts.solver import Solver, flat_weights, tensors
from logcl.streams import Task


class SIOptions(Frozen):
    """Hyperparameters of SI."""

    strength: float = Field(0.1, ge=0)
    """c: how much staying counts against the new task; 0.1 is the paper's for split MNIST."""
    damping: float = Field(0.1, gt=0)
    """ξ: keeps the importance of weights that hardly moved bounded; the paper's."""


class Path:
    """Ω and the weights that it holds."""

    def __init__(self) -> None:
        self.importance = torch.empty(0)
        self.anchor = torch.empty(0)

    def penalty(self, weights: Tensor) -> Tensor:
        """Σ_i Ω_i (θ_i - θ~_i)²."""
        if not len(self.anchor):
            return torch.zeros((), device=weights.device)
        return (self.importance * (weights - self.anchor).square()).sum()

    def slope(self, weights: Tensor) -> Tensor:
        """The gradient of the penalty."""
        return (
            2 * self.importance * (weights - self.anchor) if len(self.anchor) else torch.zeros_like(weights)
        )

    def consolidate(self, start: Tensor, end: Tensor, contribution: Tensor, damping: float) -> None:
        """Ω_i ← Ω_i + ω_i / ((θ_i - θ_i,start)² + ξ), negative contributions left out."""
        gained = contribution.clamp(min=0) / ((end - start).square() + damping)
        self.importance = self.importance + gained if len(self.importance) else gained
        self.anchor = end

    def state(self) -> State:
        """Importances and anchors, one number each for every weight."""
        return {"si.importance": self.importance.cpu(), "si.anchor": self.anchor.cpu()}

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.importance, self.anchor = state["si.importance"].clone(), state["si.anchor"].clone()


class SI(Method):
    """loss = cross-entropy of the task + c Σ Ω (θ - θ~)²; Ω is what each weight did for earlier losses."""

    Options = SIOptions
    options: SIOptions

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        self.path = Path()

    def learn(self, task: Task) -> None:
        """Train, and add up ω_i = -Σ_steps g_i Δθ_i along the way, g without the penalty's part."""
        images, labels = tensors(task)
        self.solver.see(labels)
        network, strength = self.solver.network, self.options.strength
        start = before = flat_weights(network).detach()
        contribution = torch.zeros_like(start)

        def loss(rows: Tensor) -> Tensor:
            held = self.path.penalty(flat_weights(network))
            return self.solver.loss(images[rows], labels[rows]) + strength * held

        def after_step() -> None:
            nonlocal before
            gradient = torch.cat(
                [value.grad.reshape(-1) for value in network.parameters() if value.grad is not None]
            )
            now = flat_weights(network).detach()
            contribution.sub_((gradient - strength * self.path.slope(before)) * (now - before))
            before = now

        self.solver.train(len(labels), loss, after_step)
        self.path.consolidate(start, before, contribution, self.options.damping)

    def parts(self) -> tuple[Part, ...]:
        """The network, importances and anchors."""
        return self.solver, self.path
