"""Joint training on all raw data: the upper bound, which continual learning may not have."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from logcl.classifier import predict_classes, train_network
from logcl.errors import NotTrained
from logcl.methods.protocol import Problem
from logcl.streams import Task


class Joint:
    """Keeps every raw sample; trains afresh on all of them when a prediction is asked for."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.tasks: list[Task] = []
        self.network: nn.Module | None = None

    def learn(self, task: Task) -> None:
        """Keep the raw samples."""
        self.tasks.append(task)
        self.network = None

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Class numbers (n,)."""
        if not self.tasks:
            raise NotTrained("joint training has seen no task yet; learn one first")
        if self.network is None:
            self.network = self._train()
        return predict_classes(self.network, x)

    def nbytes(self) -> int:
        """Raw pixels, and labels in the fewest whole bytes."""
        label_bytes = -(-(len(self.problem.classes) - 1).bit_length() // 8)
        return sum(task.x.nbytes + label_bytes * len(task) for task in self.tasks)

    def _train(self) -> nn.Module:
        images = torch.from_numpy(np.concatenate([task.x for task in self.tasks]))
        labels = torch.from_numpy(np.concatenate([task.y for task in self.tasks]))
        with self.problem.clock("train"):
            return train_network(
                self.problem.network,
                lambda rows: (images[rows], labels[rows]),
                len(labels),
                self.problem.settings.classifier,
                self.problem.work(len(self.tasks)),
            )
