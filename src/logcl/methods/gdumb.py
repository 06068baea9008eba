"""GDumb (Prabhu et al. 2020): greedily keep a balanced buffer; train from nothing but it, when asked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from logcl.methods.parts.exemplars import Exemplars
from logcl.methods.parts.protocol import Method, Part, Problem
from logcl.methods.parts.solver import Retrained, tensors
from logcl.streams import Task


class GDumb(Method):
    """A buffer with as many samples of each class as there is room for, and no learning before the end."""

    keeps = "budget"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.buffer = Exemplars(problem)
        self.solver: Retrained = Retrained(problem, lambda: (self.buffer.x, self.buffer.y))

    def learn(self, task: Task) -> None:
        """Take what there is room for; where there is none, the largest classes give way at random."""
        x, y = tensors(task)
        self.buffer.append(x, y)
        generator = self.problem.work(self.solver.tasks).generator
        self.buffer.keep(balanced(self.buffer.y, self.buffer.capacity, generator))
        self.solver.outdated()

    def parts(self) -> tuple[Part, ...]:
        """The buffer; the network is trained again."""
        return self.buffer, self.solver


def balanced(labels: Tensor, capacity: int, generator: torch.Generator) -> Tensor:
    """Rows of up to `capacity` samples, drawn so that the classes have as equal shares as can be."""
    order = torch.randperm(len(labels), generator=generator)
    # The first of each class, then the second of each, and so on, in the order drawn.
    by_class = order[labels[order].argsort(stable=True)]
    counts = labels.bincount()
    rank = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    return by_class[rank.argsort(stable=True)][:capacity].sort().values
