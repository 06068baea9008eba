"""X as scikit-learn checks it, one row per sample: a table, flattened images, or features of a backbone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logcl.core.errors import BadInput
from logcl.core.inputs import as_array, as_pictures
from logcl.core.settings import BackboneSpec, ImageFit, ImageShape
from logcl.integrations.sklearn.estimator_memory import View
from logcl.memory.featured import as_features
from logcl.memory.memory import Memory
from logcl.nn.backbones import Backbone

Rows = tuple[Any, ImageShape | None]
"""X with one row per sample, and the shape of a sample in the memory; None for a table."""


def first_rows(X: Any, image_shape: ImageShape | None, backbone: Backbone | None) -> Rows:
    """The rows of a new memory's first task."""
    if backbone is not None:
        return _features(X, backbone.spec, lambda: backbone, "crop"), backbone.spec.sample_shape
    return _flattened(X, image_shape, is_table=False)


def rows_in(X: Any, view: View, memory: Memory) -> Rows:
    """Rows for a memory that exists."""
    settings, is_table = view.manifest.settings, view.scale is not None
    if (spec := settings.backbone) is not None:
        return _features(X, spec, lambda: memory.backbone, settings.fit), spec.sample_shape
    return _flattened(X, None if is_table else view.image_shape, is_table)


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


def _flattened(X: Any, expected: ImageShape | None, is_table: bool) -> Rows:
    """Images of the expected shape, if one is, or a table."""
    found = tuple(getattr(X, "shape", ()))
    if len(found) not in (3, 4):
        return X, expected
    shape = found[1:] if len(found) == 4 else (1, *found[1:])
    # With more than four channels it is not clear that they come first.
    if expected is None and (is_table or shape[0] > 4):
        raise BadInput(
            f"X has shape {found}; give rows (n, features), or images (n, channels, height, width) and "
            f"image_shape=(channels, height, width)"
        )
    if expected is not None and not np.array_equal(shape, expected):
        raise BadInput(
            f"X has shape {found}, but the images of this estimator are {tuple(expected)}; resize or "
            f"transpose them"
        )
    return np.asarray(X).reshape(found[0], math.prod(shape)), shape
