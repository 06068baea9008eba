"""Synaptic intelligence, SI (Zenke et al. 2017): protect the weights that reduced earlier losses most."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from logcl.core.settings import Frozen
from logcl.methods.parts.solver import Incremental, flat_weights, tensors
from logcl.streams import Task


class SIOptions(Frozen):
    """Hyperparameters of SI."""

    strength: float = Field(0.1, ge=0)
    """c: weight of the penalty against the new task's loss; 0.1 is the paper's for split MNIST."""
    damping: float = Field(0.1, gt=0)
    """ξ: bounds the importance of weights that hardly moved; the paper's."""


class SI(Incremental):
    """loss = cross-entropy of the task + c Σ Ω (θ - θ~)²; Ω is how much a weight reduced earlier losses."""

    name = "si"
    summary = "synaptic intelligence"
    Options = SIOptions
    options: SIOptions
    by_weight = True
    kept = (*Incremental.kept, "importance", "anchor")
    importance = torch.empty(0)
    """Ω, one number per weight."""
    anchor = torch.empty(0)
    """θ~, the weights after the last task."""

    def learn(self, task: Task) -> None:
        """Train and accumulate ω_i = -Σ_steps g_i Δθ_i, where g is the gradient without the penalty's."""
        images, labels = tensors(task)
        network, strength = self.network, self.options.strength
        start = before = flat_weights(network).detach()
        if not len(self.anchor):
            self.importance, self.anchor = torch.zeros_like(start), start
        contribution = torch.zeros_like(start)

        def loss(rows: Tensor) -> Tensor:
            penalty = (self.importance * (flat_weights(network) - self.anchor).square()).sum()
            return self.loss(images[rows], labels[rows]) + strength * penalty

        def after_step() -> None:
            nonlocal before
            gradients = [value.grad for value in network.parameters() if value.grad is not None]
            gradient = torch.cat([value.reshape(-1) for value in gradients])
            of_penalty = 2 * self.importance * (before - self.anchor)
            now = flat_weights(network).detach()
            contribution.sub_((gradient - strength * of_penalty) * (now - before))
            before = now

        self.train(labels, loss, after_step)
        # Ω_i ← Ω_i + ω_i / ((θ_i - θ_i,start)² + ξ), without negative contributions.
        gained = contribution.clamp(min=0) / ((before - start).square() + self.options.damping)
        self.importance, self.anchor = self.importance + gained, before
