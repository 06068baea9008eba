"""Classifiers f(x; θ) for the global model and the labellers, for image shapes from 1x8x8 up."""

from __future__ import annotations

from pydantic import Field, model_validator
from torch import Tensor, nn

from logcl.core.settings import ClassifierNetwork, Frozen, ImageShape, check_size
from logcl.nn.networks.layers import ImageClassifier
from logcl.nn.networks.published import LeNet, ResNet18

_MOST_ACTIVATIONS = 2**28  # per layer and image: a gigabyte, 16 channels of 4096x4096


class ClassifierSpec(Frozen):
    """Description from which a classifier is built."""

    network: ClassifierNetwork
    image_shape: ImageShape
    classes: int = Field(ge=1, le=10_000_000)
    width: int = Field(ge=1, le=4096)

    @model_validator(mode="after")
    def _bounded(self) -> ClassifierSpec:
        check_size(self.network, self.image_shape)
        _, height, columns = self.image_shape
        # The first convolution has `width` activations per pixel, however few its weights.
        if self.network != "mlp" and self.width * height * columns > _MOST_ACTIVATIONS:
            raise ValueError(
                f"network = {self.network} with width = {self.width} is too wide for images of "
                f"{height}x{columns}; choose a smaller width"
            )
        return self


def classifier(spec: ClassifierSpec) -> ImageClassifier:
    """A network: images (n, C, H, W) in [0, 1] → scores (n, classes)."""
    if spec.network == "lenet":
        return LeNet(spec.image_shape, spec.classes, spec.width)
    if spec.network == "resnet18":
        return ResNet18(spec.image_shape, spec.classes, spec.width)
    return ConvNet(spec) if spec.network == "convnet" else MLP(spec)


class ConvNet(ImageClassifier):
    """Blocks of two convolutions with 2x2 pooling in between until a side is at most 4, then a linear layer.

    Images of 8x8 have two blocks, 28x28 and 32x32 three. The first block has `width` channels, the others
    four times as many: pooling early and widening late reduce the cost of large images.
    """

    def __init__(self, spec: ClassifierSpec) -> None:
        super().__init__()
        channels, *sides = spec.image_shape
        layers: list[nn.Module] = []
        out, blocks = spec.width, 0
        while min(sides) > 4 or blocks < 2:
            halve = min(sides) > 4
            layers += [
                nn.Conv2d(channels, out, 3, padding=1, bias=False),
                nn.MaxPool2d(2) if halve else nn.Identity(),
                nn.BatchNorm2d(out),
                nn.GELU(),
                nn.Conv2d(out, out, 3, padding=1, bias=False),
                nn.BatchNorm2d(out),
                nn.GELU(),
            ]
            sides = [side // 2 for side in sides] if halve else sides
            channels, out, blocks = out, 4 * spec.width, blocks + 1
        self.features = nn.Sequential(*layers)
        cells = 2 if min(sides) >= 2 else 1
        self.pool = nn.AdaptiveMaxPool2d(cells)
        self.head = nn.Linear(channels * cells * cells, spec.classes)

    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, features)."""
        features: Tensor = self.pool(self.features(image)).flatten(1)
        return features


class MLP(ImageClassifier):
    """Two hidden layers, for tiny images and for the labellers of small levels."""

    def __init__(self, spec: ClassifierSpec) -> None:
        super().__init__()
        channels, height, width = spec.image_shape
        hidden = 8 * spec.width
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * height * width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.head = nn.Linear(hidden, spec.classes)

    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, hidden)."""
        features: Tensor = self.layers(image)
        return features
