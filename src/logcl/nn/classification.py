"""Training and inference of image classifiers: the global model and the classifier of every method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core.settings import ClassifierSettings
from logcl.nn import networks
from logcl.nn.augmentation import augment
from logcl.nn.device import choose_device
from logcl.nn.images import in_blocks, to_unit
from logcl.nn.training import Work, fit, seeded

Fetch = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Takes the rows of a batch; returns uint8 images (n, C, H, W) and class numbers (n,)."""


def train_on(
    network: nn.Module,
    fetch: Fetch,
    count: int,
    settings: ClassifierSettings,
    work: Work,
    at_once: int | None = None,
) -> None:
    """Train on `count` samples, in place; `at_once`: images of a batch that are in memory together."""

    def loss(rows: Tensor) -> Tensor:
        return batch_loss(network, *fetch(rows), settings)

    fit(network, loss, count, settings, work, at_once=at_once)


def new_network(spec: networks.ClassifierSpec, work: Work) -> networks.ImageClassifier:
    """A classifier with random weights, on the device and in the memory format in which it trains fastest."""
    with seeded(work.generator):
        network = networks.classifier(spec).to(choose_device())
    return formatted(network)


def formatted(network: networks.ImageClassifier) -> networks.ImageClassifier:
    """The network in the memory format in which it trains fastest; another one rounds differently."""
    same: networks.ImageClassifier = network.to(memory_format=_memory_format(network))  # type: ignore[call-overload]
    return same


def batch_scores(network: nn.Module, pixels: Tensor, settings: ClassifierSettings) -> Tensor:
    """Scores (n, classes) of augmented uint8 images (n, C, H, W), for training."""
    image = augment(to_unit(pixels.to(choose_device())), settings)
    scores: Tensor = network(image.contiguous(memory_format=_memory_format(network)))
    return scores


def batch_loss(network: nn.Module, pixels: Tensor, labels: Tensor, settings: ClassifierSettings) -> Tensor:
    """Mean cross-entropy of a batch of augmented uint8 images (n, C, H, W) and class numbers (n,)."""
    return cross_entropy(batch_scores(network, pixels, settings), labels, settings)


def cross_entropy(
    scores: Tensor, labels: Tensor, settings: ClassifierSettings, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy of scores (n, classes) and class numbers (n,), with label smoothing."""
    return nn.functional.cross_entropy(
        scores, labels.to(scores.device), reduction=reduction, label_smoothing=settings.label_smoothing
    )


def _memory_format(network: nn.Module) -> torch.memory_format:
    """Channels last, which makes convolutions on a CPU a quarter faster, unless the network has strides.

    With strides, torch 2.13 corrupted its heap in the backward pass of narrow networks.
    """
    strides = [layer.stride for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    plain = all(stride == (1, 1) for stride in strides)
    return torch.channels_last if plain else torch.contiguous_format


def predict_proba(
    network: nn.Module, pixels: NDArray[np.uint8], widest: int = 0, *, mirrored: bool = False
) -> NDArray[np.float32]:
    """Class probabilities (n, classes) of uint8 images (n, C, H, W), computed in blocks.

    widest: values per image in the network's widest layer, if known. mirrored: average over each image and
    its mirror image.
    """

    def probabilities(image: Tensor) -> Tensor:
        found: Tensor = network(image).softmax(dim=1)
        return (found + network(image.flip(3)).softmax(dim=1)) / 2 if mirrored else found

    return in_blocks(probabilities, pixels, widest).float().numpy()


def averages(settings: ClassifierSettings) -> bool:
    """Whether predictions are averages over an image and its mirror image."""
    return settings.average_mirrored and settings.mirror is True


def predict_classes(
    network: nn.Module, pixels: NDArray[np.uint8], *, mirrored: bool = False
) -> NDArray[np.int64]:
    """The most probable class number of each uint8 image, (n,)."""
    return np.asarray(predict_proba(network, pixels, mirrored=mirrored).argmax(axis=1), dtype=np.int64)
