"""Classifiers f(x; θ) for the global model and the labellers, for image shapes from 1x8x8 up.

The paper's appendix names two of them, a "LeNet with additional dropout layers" and ResNet18.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from logcl.core.settings import (
    ClassifierNetwork,
    ClassifierSettings,
    Frozen,
    ImageShape,
    check_size,
    parse_as,
)
from logcl.nn.networks.layers import BatchNorm, ImageClassifier, check_activations, normalised, padded
from logcl.nn.networks.stem import FLAT, Stem, Stemmed, grid, reduction

_MOST_ACTIVATIONS = 2**28  # per layer and image: a gigabyte, 16 channels of 4096x4096


class ClassifierSpec(Frozen):
    """Description from which a classifier is built."""

    network: ClassifierNetwork
    image_shape: ImageShape
    classes: int = Field(ge=1, le=10_000_000)
    width: int = Field(ge=1, le=4096)
    stem: Literal[1, 2, 4, 8, 16, 32, 64, 128] = 1
    """How many times a stem reduces both sides before the network; 1: there is no stem."""

    @classmethod
    def of(cls, settings: ClassifierSettings, image_shape: ImageShape, classes: int) -> ClassifierSpec:
        """The network that the settings ask for, with a stem if the images are large."""
        chosen = settings.model_dump(include={"network", "width"})
        stem = reduction(settings.network, image_shape)
        return parse_as(cls, {**chosen, "image_shape": image_shape, "classes": classes, "stem": stem})

    @model_validator(mode="after")
    def _bounded(self) -> ClassifierSpec:
        check_size(self.network, self.grid)
        _, height, columns = self.grid
        # The first convolution has `width` activations per pixel, however few its weights.
        if self.network not in FLAT:
            check_activations(self, self.width * height * columns, _MOST_ACTIVATIONS)
        check_activations(self, self._in_stem, _MOST_ACTIVATIONS)
        return self

    @property
    def grid(self) -> ImageShape:
        """What the network behind the stem is given: (channels, rows, columns)."""
        return self.image_shape if self.stem == 1 else grid(self.image_shape, self.stem, self.width)

    @property
    def _in_stem(self) -> int:
        """Values per image of the stem's convolution, input and output."""
        if self.stem == 1:
            return 0
        channels, rows, columns = self.grid
        return 4 * rows * columns * (padded(self.image_shape[0] * (self.stem // 2) ** 2) + channels)

    @property
    def widest(self) -> int:
        """Values per image of the widest layer, input and output, about."""
        channels, height, columns = self.grid
        if self.network in FLAT:
            return max(self._in_stem, 2 * math.prod(self.grid) + 16 * self.width)
        return max(self._in_stem, (padded(channels) + padded(self.width)) * height * columns)

    @property
    def activations(self) -> int:
        """Values per image of all layers, about; in training they are all kept."""
        _, height, columns = self.grid
        stem = self._in_stem and self._in_stem + 3 * math.prod(self.grid)
        if self.network in FLAT:
            return stem + 2 * math.prod(self.grid) + 40 * self.width + self.classes
        per_pixel = {"convnet": 6, "lenet": 2, "resnet18": 27}[self.network] * padded(self.width)
        return stem + self.widest + per_pixel * height * columns + self.classes


def classifier(spec: ClassifierSpec) -> ImageClassifier:
    """A network: images (n, C, H, W) in [0, 1] → scores (n, classes)."""
    kinds: dict[str, type[ImageClassifier]] = {
        "convnet": ConvNet,
        "mlp": MLP,
        "lenet": LeNet,
        "resnet18": ResNet18,
        "linear": Linear,
        "hidden": Hidden,
    }
    network = kinds[spec.network](spec.grid, spec.classes, spec.width)
    return network if spec.stem == 1 else Stemmed(Stem(spec.image_shape, spec.stem, spec.grid[0]), network)


class ConvNet(ImageClassifier):
    """Blocks of two convolutions with 2x2 pooling in between until a side is at most 4, then a linear layer.

    Images of 8x8 have two blocks, 28x28 and 32x32 three. The first block has `width` channels, the others
    four times as many: pooling early and widening late reduce the cost of large images. Filters start as the
    identity as far as there are inputs, so that gradients reach the first ones from the start.
    """

    def __init__(self, image_shape: ImageShape, classes: int, width: int) -> None:
        super().__init__()
        channels, *sides = image_shape
        layers: list[nn.Module] = []
        out, blocks = width, 0
        while min(sides) > 4 or blocks < 2:
            halve = min(sides) > 4
            layers += [
                _identity(nn.Conv2d(channels, out, 3, padding=1, bias=False)),
                nn.MaxPool2d(2) if halve else nn.Identity(),
                nn.BatchNorm2d(out),
                nn.GELU(),
                *normalised(_identity(nn.Conv2d(out, out, 3, padding=1, bias=False)), nn.GELU()),
            ]
            sides = [side // 2 for side in sides] if halve else sides
            channels, out, blocks = out, 4 * width, blocks + 1
        cells = 2 if min(sides) >= 2 else 1
        self.features = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(cells), nn.Flatten())
        self.head = nn.Linear(channels * cells * cells, classes)


def _identity(layer: nn.Conv2d) -> nn.Conv2d:
    """The first filters copy one channel each; what is left of them stays random."""
    filters = layer.weight.data[: layer.in_channels].zero_()
    same = torch.arange(len(filters))
    filters[same, same, 1, 1] = 1
    return layer


class MLP(ImageClassifier):
    """Two hidden layers, for tiny images and for the labellers of small levels."""

    def __init__(self, image_shape: ImageShape, classes: int, width: int) -> None:
        super().__init__()
        hidden = 8 * width
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(image_shape), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.head = nn.Linear(hidden, classes)

    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, hidden)."""
        embedding: Tensor = self.layers(image)
        return embedding


class Linear(ImageClassifier):
    """Logistic regression on standardised values: for features of a backbone."""

    def __init__(self, image_shape: ImageShape, classes: int, width: int) -> None:
        super().__init__()
        del width
        values = math.prod(image_shape)
        self.features = nn.Sequential(nn.Flatten(), BatchNorm(values, affine=False))
        self.head = nn.Linear(values, classes)


class Hidden(ImageClassifier):
    """One hidden layer on standardised values, with dropout: for features of a backbone."""

    def __init__(self, image_shape: ImageShape, classes: int, width: int) -> None:
        super().__init__()
        values, hidden = math.prod(image_shape), 8 * width
        self.features = nn.Sequential(
            nn.Flatten(),
            BatchNorm(values, affine=False),
            nn.Dropout(0.2),
            nn.Linear(values, hidden),
            nn.GELU(),
            nn.Dropout(0.5),
        )
        self.head = nn.Linear(hidden, classes)


class LeNet(ImageClassifier):
    """Three strided convolutions with w, 2w and 4w channels and a hidden layer, with dropout after each.

    The appendix gives no sizes. These are from the `LeNet` with dropout in the public code of BinPlay's first
    author (KamilDeja/multiband_vae): 4x4 kernels with stride 2, batch normalisation, LeakyReLU, dropout 0.6,
    84 hidden units at w = 64, scaled with the width. Images must be at least 8x8.
    """

    def __init__(self, image_shape: ImageShape, classes: int, width: int) -> None:
        super().__init__()
        channels, rows, columns = image_shape
        layers: list[nn.Module] = []
        for before, after in pairwise((channels, width, 2 * width, 4 * width)):
            strided = nn.Conv2d(before, after, 4, stride=2, padding=1, bias=False)
            layers += normalised(strided, nn.LeakyReLU(), nn.Dropout(0.6))
        hidden = max(round(84 * width / 64), 1)
        layers += [nn.Flatten(), nn.Linear(4 * width * (rows // 8) * (columns // 8), hidden)]
        self.features = nn.Sequential(*layers, nn.LeakyReLU(), nn.Dropout(0.6))
        self.head = nn.Linear(hidden, classes)


class ResNet18(ImageClassifier):
    """He et al. 2016, the variant for small images: a 3x3 stem without pooling, four stages of two blocks.

    The stages have w, 2w, 4w and 8w channels. w = 64 is standard, 11.2 million weights for 100 classes;
    w = 20 is the "reduced ResNet18" of the online continual-learning literature, 1.1 million weights.
    """

    def __init__(self, image_shape: ImageShape, classes: int, width: int) -> None:
        super().__init__()
        first = nn.Conv2d(image_shape[0], width, 3, padding=1, bias=False)
        self.stem = nn.Sequential(*normalised(first, nn.ReLU()))
        blocks = [BasicBlock(width, width, 1), BasicBlock(width, width, 1)]
        for channels in (width, 2 * width, 4 * width):
            blocks += [BasicBlock(channels, 2 * channels, 2), BasicBlock(2 * channels, 2 * channels, 1)]
        self.stages = nn.Sequential(*blocks)
        self.head = nn.Linear(8 * width, classes)

    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, 8w)."""
        embedding: Tensor = self.stages(self.stem(image)).mean(dim=(2, 3))
        return embedding


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *normalised(nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False), nn.ReLU()),
            *normalised(nn.Conv2d(out, out, 3, padding=1, bias=False)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(*normalised(nn.Conv2d(channels, out, 1, stride=stride, bias=False)))

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, H, W) → (n, out, ⌈H / stride⌉, ⌈W / stride⌉)."""
        return nn.functional.relu(self.residual(x) + self.shortcut(x))
