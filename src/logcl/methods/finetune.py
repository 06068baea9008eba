"""Plain fine-tuning: one network, trained on each task in turn. The lower bound: it forgets."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from logcl.classifier import predict_classes, train_network
from logcl.errors import NotTrained
from logcl.methods.protocol import Problem
from logcl.streams import Task


class Finetune:
    """θ ← argmin of the new task's loss, started at the old θ; nothing else is kept."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.network: nn.Module | None = None
        self.tasks = 0

    def learn(self, task: Task) -> None:
        """Go on training with the new samples only."""
        images, labels = torch.from_numpy(task.x), torch.from_numpy(task.y)
        with self.problem.clock("train"):
            self.network = train_network(
                self.problem.network,
                lambda rows: (images[rows], labels[rows]),
                len(task),
                self.problem.settings.classifier,
                self.problem.work(self.tasks),
                network=self.network,
            )
        self.tasks += 1

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Class numbers (n,)."""
        if self.network is None:
            raise NotTrained("fine-tuning has seen no task yet; learn one first")
        return predict_classes(self.network, x)

    def nbytes(self) -> int:
        """The network's weights and statistics."""
        if self.network is None:
            return 0
        return sum(value.nbytes for value in self.network.state_dict().values())
