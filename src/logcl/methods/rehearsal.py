"""Rehearsal step by step: every batch of new samples is trained on together with one from the buffer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from logcl.methods.solver import Solver, tensors
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
