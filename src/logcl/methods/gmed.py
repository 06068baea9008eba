"""Gradient-based memory editing, GMED (Jin et al. 2021): make replayed samples harder, and keep the edits."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from logcl.core.settings import Frozen
from logcl.methods.parts.rehearsal import Rehearsal, losses, weights_ahead
from logcl.methods.parts.solver import Batch


class GMEDOptions(Frozen):
    """Hyperparameters of GMED."""

    stride: float = Field(0.05, ge=0)
    """α: step size of an edit, for pixels in [0, 1]; the paper's for CIFAR-10."""
    regulariser: float = Field(0.01, ge=0)
    """β: how strongly edits avoid raising the sample's current loss; the paper's for split MNIST."""
    rate: float = Field(0.05, gt=0)
    """Learning rate of the virtual step; the paper's for split MNIST."""


class GMED(Rehearsal):
    """Experience replay of samples that are edited so that the next step harms them more."""

    name = "gmed"
    summary = "experience replay of edited samples"
    Options = GMEDOptions
    options: GMEDOptions
    pixels = torch.float16
    """Edits are smaller than a grey level; half precision resolves an eighth of one, for twice the bytes."""

    def draw(self, x: Tensor, y: Tensor) -> Batch:
        """x ← x + α ∇_x [l(x; θ') - l(x; θ) - β l(x; θ)], θ' = θ - rate ∇l(new)."""
        rows = self.buffer.draw(len(y))
        labels = self.buffer.y[rows]
        if not len(rows):
            return self.buffer.x[rows], labels
        images = self.buffer.x[rows].float().requires_grad_(True)
        ahead = weights_ahead(self.network, x, y, self.options.rate)
        now = losses(self.network, images, labels)
        harder = losses(self.network, images, labels, ahead) - (1 + self.options.regulariser) * now
        (slope,) = torch.autograd.grad(harder.mean(), images)
        # For images in [0, 255] instead of [0, 1], gradient and step both need a factor of 255.
        edited = (images.detach() + self.options.stride * 255**2 * slope).clamp(0, 255)
        self.buffer.x[rows] = edited.to(self.buffer.x.dtype)
        return self.buffer.x[rows], labels
