"""Plain fine-tuning: one network, trained on each task in turn. The lower bound: it forgets."""

from __future__ import annotations

from typing import Any

from logcl.methods.parts.protocol import Method, Problem
from logcl.methods.parts.solver import Solver, tensors
from logcl.streams import Task


class Finetune(Method):
    """θ ← argmin of the new task's loss, started at the old θ; nothing else is kept."""

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)

    def learn(self, task: Task) -> None:
        """Go on training with the new samples only."""
        self.solver.train_on(*tensors(task))
