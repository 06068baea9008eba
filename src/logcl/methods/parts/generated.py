"""Deep generative replay: train on new samples and on generated ones, labelled by the previous classifier."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from logcl.methods.parts.solver import Solver, tensors
from logcl.nn.images import to_unit
from logcl.streams import Task

Draw = Callable[[int], Tensor]
"""Generates n uint8 images (n, C, H, W) of earlier tasks, with torch's global random state."""


def learn_with_replay(solver: Solver, task: Task, number: int, draw: Draw) -> None:
    """Train on task T = `number` (the first is 1) and on images of earlier tasks from `draw`.

    The solver's equation of deep generative replay (Shin et al. 2017): the loss of new samples has weight
    1/T, that of replayed ones 1 - 1/T. Each step replays a full batch, however small the task.
    """
    images, labels = tensors(task)
    if number == 1:
        solver.train_on(images, labels)
        return
    label = _labeller(solver)
    solver.see(labels)

    def loss(rows: Tensor) -> Tensor:
        old = draw(solver.settings.batch_size)
        # In one batch, so that batch statistics do not separate new from replayed samples.
        scores = solver.scores(torch.cat([images[rows], old]))
        targets = torch.cat([labels[rows], label(old)]).to(scores.device)
        losses = nn.functional.cross_entropy(
            scores, targets, reduction="none", label_smoothing=solver.settings.label_smoothing
        )
        return weighted(losses, len(rows), number)

    solver.train(len(labels), loss)


def weighted(losses: Tensor, new: int, number: int) -> Tensor:
    """1/T times the mean loss of the first `new` samples plus 1 - 1/T times that of the rest, replayed."""
    return losses[:new].mean() / number + losses[new:].mean() * (1 - 1 / number)


def _labeller(solver: Solver) -> Callable[[Tensor], Tensor]:
    """A frozen copy of the solver: uint8 images to class numbers."""
    network, unseen = copy.deepcopy(solver.network).eval(), ~solver.seen
    device = next(network.parameters()).device

    @torch.no_grad()
    def label(images: Tensor) -> Tensor:
        scores: Tensor = network(to_unit(images.to(device))).cpu()
        return scores.masked_fill(unseen, -torch.inf).argmax(dim=1)

    return label
