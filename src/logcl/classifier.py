"""The global model: a classifier trained on replay of the whole memory, kept in the same file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl import blobs, networks
from logcl.augmentation import augment
from logcl.encoding import to_unit
from logcl.errors import Damaged, NotTrained
from logcl.inputs import Label, Labels, as_pixels
from logcl.memory import Memory
from logcl.progress import Progress, Silent
from logcl.samples import rows_at_once
from logcl.settings import MOST_SAMPLES, ClassifierSettings, Frozen, ImageShape, parse_as
from logcl.training import Work, choose_device, fit, generator_for, seeded

Fetch = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Rows of a batch to uint8 images and class numbers."""

_CACHE = 2**32  # bytes of decoded memory that are kept while training; a larger memory is decoded on the fly
_GLOBAL = 0x91  # sets the global model's randomness apart from the levels', which have keys of their own


class Description(Frozen):
    """What the stored global model says of itself."""

    network: networks.ClassifierSpec
    classes: Labels
    """Labels by output number."""
    samples: int = Field(ge=0, lt=MOST_SAMPLES)
    """How many samples the memory held when this model was trained."""
    memory: str = Field(max_length=64)
    """The memory's digest at that moment: while it is the same, the model is up to date."""


class Classifier:
    """A trained global model. Made by `Classifier.train` or `Classifier.load`."""

    def __init__(self, about: Description, network: nn.Module) -> None:
        self.about = about
        self.network = network

    @staticmethod
    def train(
        memory: Memory,
        settings: ClassifierSettings | None = None,
        *,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> Classifier:
        """Train on replay of everything the memory holds, and keep the result in its file.

        The paper's section 4.3: sample indices are drawn evenly (each pass is a permutation of 1..n), decoded
        and labelled by their local models, and white noise hides which decoder an image came from.
        """
        memory.file.check_writable()  # before the work, not after it
        now = memory.snapshot()
        if not now.n:
            raise NotTrained(f"{memory.path} holds no samples yet; absorb some first")
        settings = settings or now.settings.classifier
        generator = generator_for(now.settings.seed if seed is None else seed, _GLOBAL)
        work = Work(generator, progress or Silent(), "global model")
        spec = parse_as(
            networks.ClassifierSpec,
            {
                "network": settings.network,
                "width": settings.width,
                "image_shape": now.settings.image_shape,
                "classes": len(now.classes),
            },
        )
        if now.n * int(np.prod(spec.image_shape)) <= _CACHE:
            images, classes = now.everything(progress)
            labels = torch.from_numpy(classes)

            def fetch(rows: Tensor) -> tuple[Tensor, Tensor]:
                return images[rows], labels[rows]

        else:

            def fetch(rows: Tensor) -> tuple[Tensor, Tensor]:
                x, y = now.fetch(rows.numpy() + 1)
                return x, torch.from_numpy(y)

        network = train_network(spec, fetch, now.n, settings, work)
        about = Description(network=spec, classes=now.classes, samples=now.n, memory=now.digest)
        memory.file.write_classifier(blobs.pack(about, blobs.weights(network, "network")))
        return Classifier(about, network)

    @staticmethod
    def load(memory: Memory) -> Classifier:
        """The global model kept in the memory's file, as it was last trained."""
        blob = memory.file.read_classifier()
        if blob is None:
            raise NotTrained(
                f"{memory.path} has no trained classifier; run `logcl train {memory.path}` first"
            )
        name = f"{memory.path}: the global model"
        about, tensors = blobs.unpack(blob, Description, name)
        if about.network.classes != len(about.classes):
            raise Damaged(f"{name} does not fit its classes; train it again with `logcl train`")
        # Convolutions take images of any size: their weights do not show that a size is absurd.
        if about.network.image_shape != memory.settings.image_shape:
            raise Damaged(f"{name} takes images of another shape; train it again with `logcl train`")
        return Classifier(about, blobs.restore(networks.classifier, about.network, tensors, "network", name))

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels by output number."""
        return self.about.classes

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height, width of the images it takes."""
        return self.about.network.image_shape

    def is_current(self, memory: Memory) -> bool:
        """Whether the memory is still the one that this model was trained from."""
        return self.about.memory == memory.digest

    def predict(self, images: Any) -> NDArray[Any]:
        """The label of each image; images as in `Memory.absorb`."""
        kind = str if isinstance(self.classes[0], str) else np.int64
        return np.array([self.classes[i] for i in self.predict_proba(images).argmax(axis=1)], dtype=kind)

    def predict_proba(self, images: Any) -> NDArray[np.float32]:
        """Probabilities (n, classes), columns as in `classes`."""
        pixels = as_pixels(images, self.image_shape)
        if not len(pixels):
            return np.empty((0, len(self.classes)), dtype=np.float32)
        return predict_proba(self.network, pixels)


def train_network(
    spec: networks.ClassifierSpec, fetch: Fetch, count: int, settings: ClassifierSettings, work: Work
) -> nn.Module:
    """Train a classifier on `count` samples; `fetch(rows)` gives uint8 images and class numbers of a batch.

    The same function trains the global model and the classifiers of all methods that begin afresh, so that
    they differ only in the samples they are given.
    """
    network = new_network(spec, work)
    fit(network, lambda rows: batch_loss(network, *fetch(rows), settings), count, settings, work)
    return network


def new_network(spec: networks.ClassifierSpec, work: Work) -> networks.ImageClassifier:
    """Random weights, drawn from the randomness of `work`, where and how they are trained fastest."""
    with seeded(work.generator):
        network = networks.classifier(spec).to(choose_device())
    laid_out: networks.ImageClassifier = network.to(memory_format=_layout(network))  # type: ignore[call-overload]
    return laid_out


def batch_scores(network: nn.Module, pixels: Tensor, settings: ClassifierSettings) -> Tensor:
    """What a network says of uint8 images (n, C, H, W) as training shows them to it: augmented."""
    image = augment(to_unit(pixels.to(choose_device())), settings)
    scores: Tensor = network(image.contiguous(memory_format=_layout(network)))
    return scores


def batch_loss(network: nn.Module, pixels: Tensor, labels: Tensor, settings: ClassifierSettings) -> Tensor:
    """Mean cross-entropy of a batch."""
    scores = batch_scores(network, pixels, settings)
    return nn.functional.cross_entropy(
        scores, labels.to(scores.device), label_smoothing=settings.label_smoothing
    )


def _layout(network: nn.Module) -> torch.memory_format:
    """Convolutions on a CPU are a quarter faster with the channels last in memory.

    Not for networks with strides: torch 2.13 corrupted its heap in the backward pass of narrow ones.
    """
    strides = [layer.stride for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    plain = all(stride == (1, 1) for stride in strides)
    return torch.channels_last if plain else torch.contiguous_format


@torch.no_grad()
def predict_proba(network: nn.Module, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Class probabilities of uint8 images, in blocks of bounded size."""
    device = choose_device()
    rows = rows_at_once(pixels.shape[1:])
    blocks = [
        # A copy, because pixels may be a read-only memory map.
        network(to_unit(torch.from_numpy(pixels[start : start + rows].copy()).to(device)))
        .softmax(dim=1)
        .cpu()
        for start in range(0, len(pixels), rows)
    ]
    outputs = torch.cat(blocks).numpy() if blocks else np.empty((0, 1), np.float32)
    return np.asarray(outputs, dtype=np.float32)


def predict_classes(network: nn.Module, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The most probable class number of each uint8 image."""
    return np.asarray(predict_proba(network, pixels).argmax(axis=1), dtype=np.int64)
