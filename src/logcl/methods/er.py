"""Experience replay (Chaudhry et al. 2019, "tiny episodic memories"; Rolnick et al. 2019)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from logcl.methods.parts.exemplars import Exemplars
from logcl.methods.parts.protocol import Method, Part, Problem
from logcl.methods.parts.rehearsal import Batch, rehearse
from logcl.methods.parts.solver import Solver
from logcl.streams import Task


class ER(Method):
    """A reservoir of raw samples; each step trains on a batch of the task and one as large out of it."""

    keeps = "budget"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        self.buffer = Exemplars(problem)

    def learn(self, task: Task) -> None:
        """One pass of the stream through the reservoir, as many training passes as the recipe has."""

        def draw(_x: Tensor, y: Tensor) -> Batch:
            rows = self.buffer.draw(len(y))
            return self.buffer.x[rows], self.buffer.y[rows]

        rehearse(self.solver, task, draw, self.buffer.reservoir)

    def parts(self) -> tuple[Part, ...]:
        """The reservoir and the network."""
        return self.solver, self.buffer
