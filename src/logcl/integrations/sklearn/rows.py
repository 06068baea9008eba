"""X as scikit-learn checks it, one row per sample: a table, flattened images, or features of a backbone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logcl.core.errors import BadInput
from logcl.core.inputs import as_array, as_pictures, as_pixels, channels_of
from logcl.core.settings import BackboneSpec, ImageFit, ImageShape
from logcl.core.sizes import AskedShape, ImageSize, parse_size
from logcl.integrations.sklearn.estimator_memory import View
from logcl.memory.featured import as_features
from logcl.memory.memory import Memory
from logcl.nn.backbones import Backbone

Rows = tuple[Any, ImageShape | None]
"""X with one row per sample, and the shape of a sample in the memory; None for a table."""


def first_rows(
    X: Any, image_shape: AskedShape | None, backbone: Backbone | None, fit: ImageFit = "crop"
) -> Rows:
    """The rows of a new memory's first task; images may decide how many channels it has."""
    if backbone is not None:
        return _features(X, backbone.spec, lambda: backbone, fit), backbone.spec.sample_shape
    return _flattened(X, None if image_shape is None else parse_size(image_shape), False, fit)


def rows_in(X: Any, view: View, memory: Memory) -> Rows:
    """Rows for a memory that exists."""
    settings, is_table = view.manifest.settings, view.scale is not None
    if (spec := settings.backbone) is not None:
        return _features(X, spec, lambda: memory.backbone, settings.fit), spec.sample_shape
    return _flattened(X, None if is_table else parse_size(view.image_shape), is_table, settings.fit)


def _features(
    X: Any, spec: BackboneSpec, backbone: Callable[[], Backbone | None], fit: ImageFit
) -> NDArray[np.uint8]:
    """Images of any size, or features, as the bytes of features (n, D)."""
    if as_pictures(X) is None:
        X = as_array(X)
        if X.ndim < 3 and (X.ndim < 2 or X.shape[1] != spec.features):
            raise BadInput(
                f"X has shape {X.shape}, like a table, which no backbone reads; give images (n, channels, "
                f"height, width), features (n, {spec.features}), or leave backbone out"
            )
    return as_features(X, spec, fit, backbone).reshape(-1, spec.features)


def _flattened(X: Any, size: ImageSize | None, is_table: bool, fit: ImageFit) -> Rows:
    """Images of the size, if one is asked for, or a table."""
    if as_pictures(X) is not None:
        if size is None:
            raise BadInput("X holds PIL images; give image_shape, e.g. 64, the size that they get")
        shape = size.shape(channels_of(X, size.height, size.width))
        pixels = as_pixels(X, shape, fit)
        return pixels.reshape(len(pixels), -1), shape
    found = tuple(getattr(X, "shape", ()))
    if len(found) not in (3, 4):
        return X, None if size is None else _by_values(size, found[1:])
    array = as_array(X)
    if len(found) == 3:
        array = array[:, None]
    elif found[1:] != (size.shape(found[1]) if size else found[1:]) or (size is None and found[1] > 4):
        array = array.transpose(0, 3, 1, 2)  # channels last
    channels, height, width = shape = array.shape[1:]
    # With more than four channels it is not clear where they are.
    if size is None and (is_table or channels > 4):
        raise BadInput(
            f"X has shape {found}; give rows (n, features), or images (n, channels, height, width) and "
            f"image_shape=(channels, height, width)"
        )
    if size is not None and not size.allows(shape):
        raise BadInput(
            f"X has shape {found}, but the images of this estimator are {size.shape(channels)}; resize or "
            f"transpose them"
        )
    return array.reshape(found[0], math.prod(shape)), (channels, height, width)


def _by_values(size: ImageSize, values: tuple[int, ...]) -> ImageShape:
    """The shape of flattened images: one channel or as many as the values fill."""
    channels = values[0] // (size.height * size.width) if values else 0
    return size.shape(max(int(channels), 1))
