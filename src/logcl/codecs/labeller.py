"""Labels of a level: stored as integers, or read off the decoded image by the paper's local f(x; θk)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl.codecs.decoding import in_blocks
from logcl.core.settings import ClassifierNetwork, Frozen, ImageShape, Recipe
from logcl.nn import blobs, networks
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import Work, fit, seeded, total_steps


class LabelSettings(Frozen):
    """How a level knows the labels of its samples."""

    kind: Literal["stored", "labeller"] = "stored"
    """`stored`: packed integers; `labeller`: a network that reads the label off the decoded image."""
    network: ClassifierNetwork = "mlp"
    """The labeller's network, one of the classifier's."""
    width: int = Field(8, ge=1, le=4096)
    """As `classifier.width`, at the largest level; smaller levels get less."""
    smallest: float = Field(1 / 8, gt=0, le=1)
    """Size of the smallest levels' labellers relative to the largest."""
    training: Recipe = Recipe(epochs=15, min_steps=600, learning_rate=3e-3)
    """How a labeller is trained, on the decoded images."""

    def labeller(self, image_shape: ImageShape, classes: int, ratio: float) -> networks.ClassifierSpec | None:
        """The network of a level `ratio` times as large as the largest; None if labels are stored.

        A level of one class has nothing to read.
        """
        if self.kind == "stored" or classes < 2:
            return None
        spec = networks.ClassifierSpec(
            network=self.network, image_shape=image_shape, classes=classes, width=self.width
        )
        return networks.sized(spec, ratio)

    def steps(self, samples: int, classes: int) -> int:
        """Optimiser steps of the labeller of a level."""
        return 0 if self.kind == "stored" or classes < 2 else total_steps(self.training, samples)


def read(labeller: nn.Module, images: Tensor) -> NDArray[np.int64]:
    """The most probable class of each uint8 image (n, C, H, W)."""
    # Not the scores of all images: those would take four bytes per image and class.
    classes: NDArray[np.int64] = in_blocks(lambda image: labeller(image).argmax(dim=1), images).numpy()
    return classes


def trained(
    spec: networks.ClassifierSpec,
    images: Tensor,
    positions: NDArray[np.int64],
    recipe: Recipe,
    work: Work,
) -> nn.Module:
    """f(x; θk), trained on the decoded images: exactly those it will be asked about."""
    device = choose_device()
    with seeded(work.generator):
        labeller = networks.classifier(spec).to(device)
    x, y = images.to(device), torch.from_numpy(positions).to(device)

    def loss(rows: Tensor) -> Tensor:
        rows = rows.to(device)
        return nn.functional.cross_entropy(labeller(to_unit(x[rows])), y[rows])

    fit(labeller, loss, len(y), recipe, work)
    blobs.round_weights(labeller, "half")
    return labeller
