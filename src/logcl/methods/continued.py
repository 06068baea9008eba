"""A replay buffer that keeps everything, for a network that goes on from task to task."""

from __future__ import annotations

from typing import Any

from logcl.methods.protocol import Method, Part, Problem
from logcl.methods.raw import RawSamples
from logcl.methods.solver import Solver
from logcl.streams import Task


class Continued(Method):
    """Keeps every raw sample; each task trains the same network further, on i ~ U{1..n}."""

    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.raw = RawSamples(problem)
        self.solver: Solver = Solver(problem)

    def learn(self, task: Task) -> None:
        """Keep the raw samples and go on training with all there are."""
        self.raw.append(task)
        self.solver.train_on(*self.raw.everything())

    def parts(self) -> tuple[Part, ...]:
        """The raw samples and the network."""
        return self.raw, self.solver
