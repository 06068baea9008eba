"""What users give and get where a memory holds features: images of any size, or features φ(x) themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core import features
from logcl.core.errors import BadInput
from logcl.core.inputs import as_array, as_pictures, as_pixels, to_uint8
from logcl.core.progress import Progress
from logcl.core.settings import BackboneSpec, BasicSettings, ImageFit
from logcl.nn.backbones import Backbone, fitted
from logcl.nn.images import to_unit


def as_samples(
    given: Any,
    settings: BasicSettings,
    backbone: Callable[[], Backbone | None],
    progress: Progress | None = None,
) -> NDArray[np.uint8]:
    """Images, or features of them, as the samples (n, *settings.image_shape) of a memory.

    backbone: called only if there are images whose features have to be computed.
    """
    spec, side = settings.backbone, settings.thumbnails
    if spec is None:
        return as_pixels(given, settings.image_shape, settings.fit)
    array = _array(given, spec, settings.fit)
    if array.shape[1:] == settings.image_shape and array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if side and (array.ndim == 2 or array.shape[1:] == spec.sample_shape):
        raise BadInput("this memory keeps thumbnails beside features; give images, not features")
    samples = _features(array, spec, backbone, progress)
    return illustrated(samples, to_uint8(array), side) if side else samples


def as_features(
    given: Any,
    spec: BackboneSpec,
    fit: ImageFit,
    backbone: Callable[[], Backbone | None],
) -> NDArray[np.uint8]:
    """Images, or features of them, as bytes (n, 1, 1, D)."""
    return _features(_array(given, spec, fit), spec, backbone, None)


def illustrated(samples: NDArray[np.uint8], images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Features (n, 1, 1, D) with thumbnails of the images (n, C, H, W) behind them; 0: as they are."""
    if not side:
        return samples
    small = torch.empty((len(images), 3, side, side), dtype=torch.uint8)
    for row in range(len(images)):
        picture = fitted(to_unit(torch.from_numpy(images[row : row + 1].copy())), (3, side, side))
        small[row] = picture[0].mul(255).round().to(torch.uint8)
    return np.concatenate([samples, small.flatten(1).numpy()[:, None, None]], axis=3)


def samples_of(backbone: Backbone, side: int, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The samples of images (n, C, H, W): features and, unless `side` is 0, thumbnails."""
    return illustrated(backbone.samples(images), images, side)


def seen(samples: Tensor, spec: BackboneSpec | None) -> Tensor:
    """What a classifier sees of samples: images, or features without thumbnails."""
    return samples if spec is None else samples[..., : spec.features]


def pictures(samples: Tensor, settings: BasicSettings) -> Tensor | None:
    """What there is to show of samples: images (n, C, H, W), or thumbnails; None if there are none."""
    if settings.backbone is None:
        return samples
    side = settings.thumbnails
    return samples[..., settings.backbone.features :].reshape(-1, 3, side, side) if side else None


def _array(given: Any, spec: BackboneSpec, fit: ImageFit) -> NDArray[Any]:
    array: NDArray[Any] = as_pixels(given, spec.image_shape, fit) if as_pictures(given) else as_array(given)
    channels = spec.image_shape[0]
    if array.ndim == 3:
        array = array[:, None]
    if array.ndim == 4 and array.shape[1] not in (1, channels) and array.shape[3] in (1, channels):
        array = array.transpose(0, 3, 1, 2)
    return array


def _features(
    array: NDArray[Any],
    spec: BackboneSpec,
    backbone: Callable[[], Backbone | None],
    progress: Progress | None,
) -> NDArray[np.uint8]:
    if array.shape[1:] == spec.sample_shape and array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.ndim == 2:
        return _stored(array, spec)
    channels = spec.image_shape[0]
    if array.ndim != 4 or array.shape[1] not in (1, channels):
        raise BadInput(
            f"images have shape {array.shape}; this memory takes (n, {channels}, height, width), (n, "
            f"height, width, {channels}), PIL images, or features (n, {spec.features})"
        )
    network = backbone()
    assert network is not None  # there is a spec
    return network.samples(to_uint8(array), progress)


def _stored(array: NDArray[Any], spec: BackboneSpec) -> NDArray[np.uint8]:
    if array.shape[1] != spec.features or array.dtype.kind != "f":
        raise BadInput(
            f"features have shape {array.shape} and type {array.dtype}; this memory takes floats "
            f"(n, {spec.features})"
        )
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise BadInput(f"features {row} have NaN or infinite values; remove them")
    return features.to_bytes(array, spec.scale)[:, None, None, :]


def of_user(samples: Tensor, spec: BackboneSpec | None) -> Tensor:
    """Samples as users get them: images (n, C, H, W) in [0, 1], or features (n, D)."""
    if spec is None:
        return to_unit(samples)
    return torch.from_numpy(features.from_bytes(seen(samples, spec).flatten(1).numpy(), spec.scale))


class OnFeatures(nn.Module):
    """A network of the user's that classifies features (n, D), as one that takes samples of a memory."""

    def __init__(self, network: nn.Module, spec: BackboneSpec) -> None:
        super().__init__()
        self.network = network
        table = features.from_bytes(np.arange(256, dtype=np.uint8), spec.scale)
        self.register_buffer("table", torch.from_numpy(table), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 1, D) in [0, 1] → (n, classes)."""
        scores: Tensor = self.network(self.get_buffer("table")[(x * 255).round().long().flatten(1)])
        return scores
