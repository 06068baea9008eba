"""Gradient-based memory editing (Jin et al. 2021): replayed samples are made harder, and kept so."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from logcl.core.settings import Frozen
from logcl.methods.parts.exemplars import Exemplars
from logcl.methods.parts.protocol import Method, Part, Problem
from logcl.methods.parts.rehearsal import Batch, losses, rehearse, weights_ahead
from logcl.methods.parts.solver import Solver, evaluating
from logcl.streams import Task


class GMEDOptions(Frozen):
    """Hyperparameters of GMED."""

    stride: float = Field(0.05, ge=0)
    """α: how far an edit goes along the gradient, pixels in [0, 1]; the paper's for CIFAR-10. Its 5 for split
    MNIST is for a single pass: over many passes samples become noise."""
    regulariser: float = Field(0.01, ge=0)
    """β: how much a low loss of the edited sample itself counts; the paper's for split MNIST."""
    rate: float = Field(0.05, gt=0)
    """The learning rate of the imagined step; the paper's for split MNIST."""


class GMED(Method):
    """Experience replay whose samples drift to where the next step would harm them more."""

    Options = GMEDOptions
    options: GMEDOptions
    keeps = "budget"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        # Edits are smaller than a grey level: half precision keeps eighths of one, at twice the bytes.
        self.buffer = Exemplars(problem, torch.float16)

    def learn(self, task: Task) -> None:
        """One pass of the stream through the reservoir, as many training passes as the recipe has."""
        rehearse(self.solver, task, self._edited, self.buffer.reservoir)

    def parts(self) -> tuple[Part, ...]:
        """The network and the reservoir of edited samples."""
        return self.solver, self.buffer

    def _edited(self, x: Tensor, y: Tensor) -> Batch:
        """x ← x + α ∇_x [l(x; θ') - l(x; θ) - β l(x; θ)], θ' = θ - rate ∇l(new)."""
        rows = self.buffer.draw(len(y))
        labels = self.buffer.y[rows]
        if not len(rows):
            return self.buffer.x[rows], labels
        images = self.buffer.x[rows].float().requires_grad_(True)
        network = self.solver.network
        with evaluating(network):
            ahead = weights_ahead(network, x, y, self.options.rate)
            now = losses(network, images, labels)
            harder = losses(network, images, labels, ahead) - (1 + self.options.regulariser) * now
            (slope,) = torch.autograd.grad(harder.mean(), images)
        # `images` are in grey levels, 255 to the unit: the slope in units is 255 times as steep.
        edited = (images.detach() + self.options.stride * 255**2 * slope).clamp(0, 255)
        self.buffer.x[rows] = edited.to(self.buffer.x.dtype)
        return self.buffer.x[rows], labels
