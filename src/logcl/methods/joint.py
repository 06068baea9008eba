"""Joint training on all raw data: the upper bound, which continual learning may not have."""

from __future__ import annotations

from typing import Any

from logcl.methods.parts.protocol import Method, Part, Problem
from logcl.methods.parts.raw import RawSamples
from logcl.methods.parts.solver import Retrained
from logcl.streams import Task


class Joint(Method):
    """Keeps every raw sample; trains afresh on all of them when a prediction is asked for."""

    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.raw = RawSamples(problem)
        self.solver: Retrained = Retrained(problem, self.raw.everything)

    def learn(self, task: Task) -> None:
        """Keep the raw samples."""
        self.raw.append(task)
        self.solver.outdated()

    def parts(self) -> tuple[Part, ...]:
        """The raw samples and the tasks so far: the network is trained again."""
        return self.raw, self.solver
