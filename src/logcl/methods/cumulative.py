"""Cumulative training: joint training on all raw data so far, repeated after each task."""

from __future__ import annotations

from typing import Any

from logcl.methods.protocol import Method, Part, Problem
from logcl.methods.raw import RawSamples
from logcl.methods.solver import Solver
from logcl.streams import Task


class Cumulative(Method):
    """Keeps every raw sample; after each task a new network is trained on all of them, asked for or not."""

    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.raw = RawSamples(problem)
        self.solver: Solver = Solver(problem)

    def learn(self, task: Task) -> None:
        """Keep the raw samples and train afresh on all there are."""
        self.raw.append(task)
        self.solver.forget()
        self.solver.train_on(*self.raw.everything())

    def parts(self) -> tuple[Part, ...]:
        """The raw samples and the network."""
        return self.raw, self.solver
