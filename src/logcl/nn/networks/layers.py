"""Base classes and layers shared by several networks."""

from __future__ import annotations

import abc

from torch import Tensor, nn


class ImageClassifier(nn.Module, abc.ABC):
    """Base of all classifiers: an embedding and a linear head."""

    head: nn.Linear

    @abc.abstractmethod
    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) in [0, 1] → (n, features)."""

    def forward(self, image: Tensor) -> Tensor:
        """(n, C, H, W) in [0, 1] → (n, classes)."""
        scores: Tensor = self.head(self.embed(image))
        return scores


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation that uses the running statistics if there is only one value per channel.

    A level may hold one sample, and strided networks shrink 8x8 images to one cell; the variance of a single
    value is zero, and torch refuses such batches.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, rows, columns) → the same shape."""
        if self.training and x.numel() == x.shape[1]:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(x)
