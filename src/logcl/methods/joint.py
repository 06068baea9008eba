"""Joint training on all raw data: the upper bound, which is not continual learning."""

from __future__ import annotations

from typing import Any

from logcl.methods.parts.protocol import Method, Problem
from logcl.methods.parts.raw import RawSamples
from logcl.methods.parts.solver import Retrained
from logcl.streams import Task


class Joint(Method):
    """Keeps every raw sample; trains from scratch on all of them when a prediction is needed."""

    name = "joint"
    summary = "upper bound: all raw data, trained on when a prediction is needed"
    bound = True
    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.raw = RawSamples(problem)
        self.solver: Retrained = Retrained(problem, self.raw.everything)

    def learn(self, task: Task) -> None:
        """Add the raw samples."""
        self.raw.append(task)
        self.solver.outdated()


class ReplayBuffer(Joint):
    """The paper's replay buffer: trained like LogCL, but on raw samples, which is joint training."""

    name = "replay-buffer"
    summary = "upper bound: every raw sample, otherwise trained like LogCL"
