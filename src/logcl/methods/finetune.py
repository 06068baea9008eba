"""Fine-tuning: one network, trained on each task in turn. The lower bound, since it forgets."""

from __future__ import annotations

from typing import Any

from logcl.methods.parts.protocol import Method, Problem
from logcl.methods.parts.solver import Solver, tensors
from logcl.streams import Task


class Finetune(Method):
    """θ ← argmin of the new task's loss, starting from the old θ; nothing but the network is kept."""

    name = "finetune"
    summary = "lower bound: each task in turn, nothing against forgetting"
    bound = True

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)

    def learn(self, task: Task) -> None:
        """Continue training on the new samples only."""
        self.solver.train_on(*tensors(task))
