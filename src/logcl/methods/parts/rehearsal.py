"""Rehearsal step by step: every batch of new samples is trained on together with one from the buffer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from logcl.methods.parts.solver import Solver, tensors
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.streams import Task

Batch = tuple[Tensor, Tensor]
"""Images and class numbers."""


def rehearse(
    solver: Solver,
    task: Task,
    draw: Callable[[Tensor, Tensor], Batch],
    keep: Callable[[Tensor, Tensor], None],
) -> None:
    """Train on a task beside `draw(x, y)`, what is taken out of the buffer for a batch of new samples.

    Each new sample is offered to `keep(x, y)` once, after the batch in which it is seen first. What is drawn
    at random inside both draws from torch's global state, which the training loop seeds.
    """
    images, labels = tensors(task)
    solver.see(labels)
    offered = torch.zeros(len(labels), dtype=torch.bool)

    def loss(rows: Tensor) -> Tensor:
        x, y = images[rows], labels[rows]
        old_x, old_y = draw(x, y)
        value = solver.loss(torch.cat([x, old_x]), torch.cat([y, old_y]))
        first = rows[~offered[rows]]
        if len(first):
            offered[first] = True
            keep(images[first], labels[first])
        return value

    solver.train(len(labels), loss)


def weights_ahead(network: nn.Module, x: Tensor, y: Tensor, rate: float) -> dict[str, Tensor]:
    """Where one plain gradient step on a batch would take the weights: θ - rate ∇l(x, y; θ)."""
    weights = dict(network.named_parameters())
    gradients = torch.autograd.grad(losses(network, x, y).mean(), list(weights.values()))
    return {
        name: (value - rate * gradient).detach()
        for (name, value), gradient in zip(weights.items(), gradients, strict=True)
    }


def losses(network: nn.Module, x: Tensor, y: Tensor, weights: dict[str, Tensor] | None = None) -> Tensor:
    """The cross-entropy of each sample, not augmented, with the network's own weights or with others."""
    images, labels = to_unit(x.to(choose_device())), y.to(choose_device())
    scores = network(images) if weights is None else functional_call(network, weights, (images,))
    return nn.functional.cross_entropy(scores, labels, reduction="none")
