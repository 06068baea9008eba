"""Training on all raw data: the upper bounds, which are not continual learning."""

from __future__ import annotations

from logcl.methods.parts.exemplars import RawSamples
from logcl.methods.parts.protocol import Problem
from logcl.methods.parts.solver import Batch, Incremental, Retrained, tensors
from logcl.streams import Task


class Joint(Retrained):
    """Keeps every raw sample; trains from scratch on all of them when a prediction is needed."""

    name = "joint"
    summary = "upper bound: all raw data, trained on when a prediction is needed"
    bound = True
    keeps = "all"

    def __init__(self, problem: Problem, options: object = None) -> None:
        super().__init__(problem, options)
        self.raw = RawSamples(problem)

    def learn(self, task: Task) -> None:
        """Add the raw samples."""
        self.raw.append(*tensors(task))
        self.outdated()

    def everything(self) -> Batch:
        """All raw samples."""
        return self.raw.x, self.raw.y


class ReplayBuffer(Joint):
    """The paper's replay buffer: trained like LogCL, but on raw samples, which is joint training."""

    name = "replay-buffer"
    summary = "upper bound: every raw sample, otherwise trained like LogCL"


class Cumulative(Joint):
    """Keeps every raw sample; each task trains the network on all of them, i ~ U{1..n}."""

    name = "cumulative"
    summary = "upper bound: joint training, repeated after each task"
    kept = Incremental.kept

    def learn(self, task: Task) -> None:
        """Add the raw samples and train on all of them."""
        self.raw.append(*tensors(task))
        self.retrain_on(*self.everything())
