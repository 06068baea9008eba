"""GDumb (Prabhu et al. 2020): greedily keep a balanced buffer, and train on it alone when needed."""

from __future__ import annotations

import torch
from torch import Tensor

from logcl.methods.parts.solver import Retrained, tensors
from logcl.streams import Task


class GDumb(Retrained):
    """A class-balanced buffer; a network is trained on it only when a prediction is needed."""

    name = "gdumb"
    summary = "a balanced buffer, trained on from scratch"
    keeps = "budget"

    def learn(self, task: Task) -> None:
        """Add the task; if it does not fit, drop random samples of the largest classes."""
        self.buffer.append(*tensors(task))
        generator = self.problem.work(self.tasks).generator
        self.buffer.keep(balanced(self.buffer.y, self.buffer.capacity, generator))
        self.outdated()


def balanced(labels: Tensor, capacity: int, generator: torch.Generator) -> Tensor:
    """Rows of up to `capacity` random samples, with classes as balanced as possible."""
    order = torch.randperm(len(labels), generator=generator)
    # The first of each class, then the second of each, and so on, in the order drawn.
    by_class = order[labels[order].argsort(stable=True)]
    counts = labels.bincount()
    rank = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    return by_class[rank.argsort(stable=True)][:capacity].sort().values
