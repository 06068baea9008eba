"""iCaRL (Rebuffi et al. 2017): herded exemplars, distillation, and the nearest mean of exemplars."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.methods.parts.solver import Incremental, tensors
from logcl.nn.classification import in_blocks
from logcl.streams import Task


class ICaRL(Incremental):
    """The network learns an embedding; the class whose exemplars have the nearest mean is predicted."""

    name = "icarl"
    summary = "herded exemplars, distillation, nearest mean"
    keeps = "budget"

    def learn(self, task: Task) -> None:
        """Update the representation (algorithm 3), then reduce and construct exemplars (5 and 4)."""
        x, y = tensors(task)
        self._update_representation(torch.cat([x, self.buffer.x]), torch.cat([y, self.buffer.y]))
        self._choose_exemplars(x, y)

    def class_scores(self, x: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The negative distances to the mean of each class's exemplars (algorithm 1)."""
        embedded, classes = self._embed(self.buffer.x.numpy()), self.buffer.y.unique()
        means = torch.stack([embedded[self.buffer.y == number].mean(dim=0) for number in classes])
        scores = np.full((len(x), len(self.seen)), -np.inf, dtype=np.float32)
        scores[:, classes.numpy()] = -torch.cdist(self._embed(x), nn.functional.normalize(means, dim=1))
        return scores

    def _update_representation(self, x: Tensor, y: Tensor) -> None:
        """One binary target per class: the label for new classes, the old network's output for old ones."""
        old = self.seen.clone()
        targets = nn.functional.one_hot(y, len(old)).float()
        if old.any():
            targets[:, old] = in_blocks(self.network, x.numpy()).sigmoid()[:, old]

        def loss(rows: Tensor) -> Tensor:
            scores = self.scores(x[rows])
            return nn.functional.binary_cross_entropy_with_logits(scores, targets[rows].to(scores.device))

        self.train(y, loss)

    def _choose_exemplars(self, x: Tensor, y: Tensor) -> None:
        """capacity / classes samples per class, in herding order, so that truncating keeps the best."""
        self.buffer.append(x, y)
        share = max(self.buffer.capacity // int(self.seen.sum()), 1)
        chosen = []
        for number in self.buffer.y.unique():
            rows = (self.buffer.y == number).nonzero()[:, 0]
            # A class that comes back is herded again, from its exemplars and the new samples.
            if (y == number).any():
                rows = rows[herd(self._embed(self.buffer.x[rows].numpy()), share)]
            chosen.append(rows[:share])
        self.buffer.keep(torch.cat(chosen)[: self.buffer.capacity])

    def _embed(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Embeddings of unit length, on the CPU."""
        return nn.functional.normalize(in_blocks(self.network.embed, pixels), dim=1)


def herd(embedded: Tensor, count: int) -> Tensor:
    """Up to `count` rows, each chosen to keep the running mean nearest to the overall mean (algorithm 4)."""
    mean = embedded.mean(dim=0)
    total = torch.zeros_like(mean)
    left = torch.ones(len(embedded), dtype=torch.bool)
    chosen: list[int] = []
    for number in range(1, min(count, len(embedded)) + 1):
        distance = (mean - (total + embedded) / number).square().sum(dim=1)
        row = int(distance.masked_fill(~left, torch.inf).argmin())
        left[row] = False
        total += embedded[row]
        chosen.append(row)
    return torch.tensor(chosen)
