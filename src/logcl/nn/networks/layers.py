"""Layers that several networks share."""

from __future__ import annotations

import abc

from torch import Tensor, nn


class ImageClassifier(nn.Module, abc.ABC):
    """What every classifier consists of: an embedding, and one linear layer that reads the classes off it."""

    head: nn.Linear

    @abc.abstractmethod
    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) in [0, 1] → (n, features)."""

    def forward(self, image: Tensor) -> Tensor:
        """(n, C, H, W) in [0, 1] → (n, classes)."""
        scores: Tensor = self.head(self.embed(image))
        return scores


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation that lets a single value a channel pass: it has no spread to divide by.

    A level may hold one sample, and strided networks shrink 8x8 images to one cell: then the running
    statistics stand in for those of the batch.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, rows, columns), the same out."""
        if self.training and x.numel() == x.shape[1]:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(x)
