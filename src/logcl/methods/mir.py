"""Maximally interfered retrieval, MIR (Aljundi et al. 2019b): replay what the next step harms most."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from logcl.core.settings import Frozen
from logcl.methods.parts.rehearsal import Rehearsal, losses, weights_ahead
from logcl.methods.parts.solver import Batch


class MIROptions(Frozen):
    """Hyperparameters of MIR."""

    candidates: float = Field(5.0, ge=1)
    """Candidates per replayed sample; the paper has 50 for 10."""
    rate: float = Field(0.05, gt=0)
    """Learning rate of the virtual step; the paper's for MNIST."""


class MIR(Rehearsal):
    """Experience replay of the samples whose loss a virtual step on the new batch increases most."""

    name = "mir"
    summary = "experience replay of the samples that the next step harms most"
    Options = MIROptions
    options: MIROptions

    def draw(self, x: Tensor, y: Tensor) -> Batch:
        """θ' = θ - rate ∇l(new); of the candidates, those with the largest l(θ') - l(θ)."""
        rows = self.buffer.draw(round(self.options.candidates * len(y)))
        old_x, old_y = self.buffer.x[rows], self.buffer.y[rows]
        if len(rows) <= len(y):
            return old_x, old_y
        ahead = weights_ahead(self.network, x, y, self.options.rate)
        harm = losses(self.network, old_x, old_y, ahead) - losses(self.network, old_x, old_y)
        chosen = harm.detach().topk(len(y)).indices.cpu()
        return old_x[chosen], old_y[chosen]
