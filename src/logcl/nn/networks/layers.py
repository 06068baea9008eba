"""Base classes and layers shared by several networks."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class ImageClassifier(nn.Module):
    """Base of all classifiers: an embedding and a linear head."""

    features: nn.Module
    head: nn.Linear

    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) in [0, 1] → (n, features)."""
        embedding: Tensor = self.features(image)
        return embedding

    def forward(self, image: Tensor) -> Tensor:
        """(n, C, H, W) in [0, 1] → (n, classes)."""
        scores: Tensor = self.head(self.embed(image))
        return scores


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation of flat or spatial features, also if there is only one value per channel.

    A level may hold one sample, and strided networks shrink 8x8 images to one cell. The variance of a single
    value is zero, and torch refuses such batches, so these use the running statistics.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, rows, columns) or (n, channels) → the same shape."""
        spatial = x if x.dim() == 4 else x[:, :, None, None]
        if self.training and x.numel() == x.shape[1]:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(spatial).reshape(x.shape)


def normalised(layer: nn.Conv2d | nn.ConvTranspose2d, *activation: nn.Module) -> list[nn.Module]:
    """A convolution, batch normalisation and an activation."""
    return [layer, BatchNorm(layer.out_channels), *activation]


def check_activations(spec: Any, count: int, most: int) -> None:
    """Refuse a network description with more than `most` activations per layer and image."""
    if count > most:
        _, height, columns = spec.image_shape
        raise ValueError(
            f"network = {spec.network} with width = {spec.width} is too wide for images of "
            f"{height}x{columns}; choose a smaller width"
        )
