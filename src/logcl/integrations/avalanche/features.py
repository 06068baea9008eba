"""Data sets of images as data sets of the features that a backbone computes of them, once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from logcl.core.errors import BadInput
from logcl.core.features import from_bytes
from logcl.core.inputs import as_pictures
from logcl.core.progress import Progress, Silent
from logcl.core.settings import BackboneSpec
from logcl.memory.featured import as_features
from logcl.nn import backbones
from logcl.nn.backbones import Backbone

_AT_ONCE = 64  # images in memory


class FeatureSet(Dataset[tuple[Tensor, int]]):
    """Features (D,) and classes, with the attribute `targets` that Avalanche looks for."""

    def __init__(self, stored: NDArray[np.uint8], targets: list[int], spec: BackboneSpec) -> None:
        """stored: features as bytes (n, D)."""
        self.stored, self.targets, self.spec = stored, targets, spec

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        return torch.from_numpy(from_bytes(self.stored[position], self.spec.scale)), self.targets[position]


def features_of(data: Any, backbone: str | Backbone, progress: Progress | None = None) -> FeatureSet:
    """The features of a data set, computed once; a benchmark is then made of them instead of the images.

    data: any data set of images and classes: PIL images, or uint8 or float tensors or arrays in [0, 1] of any
    size, not normalised. Random transforms are applied once. backbone: the one that the plugin gets.

    Features are kept in RAM, one byte each, as a memory takes them.
    """
    network = backbones.named(backbone) if isinstance(backbone, str) else backbone
    stored = np.empty((len(data), network.spec.features), np.uint8)
    targets: list[int] = []
    with (progress or Silent()).track("computing features", max(len(data), 1)) as advance:
        for start in range(0, len(data), _AT_ONCE):
            samples = [data[row] for row in range(start, min(start + _AT_ONCE, len(data)))]
            targets += [int(sample[1]) for sample in samples]
            for group in _alike([sample[0] for sample in samples]):
                stored[start : start + len(group)] = _computed(group, network, start)
                start += len(group)
                advance(len(group))
    return FeatureSet(stored, targets, network.spec)


def _computed(images: list[Any], network: Backbone, first: int) -> NDArray[np.uint8]:
    spec = network.spec
    if np.ndim(images[0]) == 1 and as_pictures(images) is None:
        raise BadInput(f"sample {first} is no image, but has shape {tuple(np.shape(images[0]))}; give images")
    return as_features(images, spec, "crop", lambda: network).reshape(len(images), -1)


def _alike(images: list[Any]) -> Iterator[list[Any]]:
    """Neighbours that fit into one array; all PIL images do."""
    for _, group in groupby(images, lambda image: getattr(image, "shape", None)):
        yield list(group)
