"""Cumulative training: after each task, train on all raw data so far."""

from __future__ import annotations

from typing import Any

from logcl.methods.parts.protocol import Method, Problem
from logcl.methods.parts.raw import RawSamples
from logcl.methods.parts.solver import Solver
from logcl.streams import Task


class Cumulative(Method):
    """Keeps every raw sample; each task trains the network on all of them, i ~ U{1..n}."""

    name = "cumulative"
    summary = "upper bound: joint training, repeated after each task"
    bound = True
    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.raw = RawSamples(problem)
        self.solver: Solver = Solver(problem)

    def learn(self, task: Task) -> None:
        """Add the raw samples and train on all of them."""
        self.raw.append(task)
        self.solver.retrain_on(*self.raw.everything())
