"""Maximally interfered retrieval (Aljundi et al. 2019b): replay what the next step would harm most."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from torch import Tensor

from logcl.core.settings import Frozen
from logcl.methods.parts.exemplars import Exemplars
from logcl.methods.parts.protocol import Method, Part, Problem
from logcl.methods.parts.rehearsal import Batch, losses, rehearse, weights_ahead
from logcl.methods.parts.solver import Solver, evaluating
from logcl.streams import Task


class MIROptions(Frozen):
    """Hyperparameters of MIR."""

    candidates: float = Field(5.0, ge=1)
    """Samples that are looked at for each one that is replayed; the paper looks at 50 for 10."""
    rate: float = Field(0.05, gt=0)
    """The learning rate of the imagined step; the paper's for MNIST."""


class MIR(Method):
    """Experience replay in which the samples are chosen: those whose loss grows most by an imagined step."""

    Options = MIROptions
    options: MIROptions
    keeps = "budget"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        self.buffer = Exemplars(problem)

    def learn(self, task: Task) -> None:
        """One pass of the stream through the reservoir, as many training passes as the recipe has."""
        rehearse(self.solver, task, self._most_harmed, self.buffer.reservoir)

    def parts(self) -> tuple[Part, ...]:
        """The network and the reservoir."""
        return self.solver, self.buffer

    def _most_harmed(self, x: Tensor, y: Tensor) -> Batch:
        """θ' = θ - rate ∇l(new); of the candidates those with the largest l(θ') - l(θ)."""
        rows = self.buffer.draw(round(self.options.candidates * len(y)))
        old_x, old_y = self.buffer.x[rows], self.buffer.y[rows]
        if len(rows) <= len(y):
            return old_x, old_y
        network = self.solver.network
        with evaluating(network):
            ahead = weights_ahead(network, x, y, self.options.rate)
            harm = losses(network, old_x, old_y, ahead) - losses(network, old_x, old_y)
        chosen = harm.detach().topk(len(y)).indices.cpu()
        return old_x[chosen], old_y[chosen]
