"""Cumulative training: on all raw data so far, after each task, whether an answer is asked for or not."""

from __future__ import annotations

from typing import Any

from logcl.methods.parts.protocol import Method, Part, Problem
from logcl.methods.parts.raw import RawSamples
from logcl.methods.parts.solver import Solver
from logcl.streams import Task


class Cumulative(Method):
    """Keeps every raw sample; each task trains the network on all of them, i ~ U{1..n}."""

    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.raw = RawSamples(problem)
        self.solver: Solver = Solver(problem)

    def learn(self, task: Task) -> None:
        """Keep the raw samples and train on all there are."""
        self.raw.append(task)
        self.solver.retrain_on(*self.raw.everything())

    def parts(self) -> tuple[Part, ...]:
        """The raw samples and the network."""
        return self.raw, self.solver
