"""What users give and get where a memory holds features: images of any size, or features φ(x) themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logcl.core import features
from logcl.core.errors import BadInput
from logcl.core.inputs import as_array, as_pixels, to_uint8
from logcl.core.progress import Progress
from logcl.core.settings import BackboneSpec, BasicSettings
from logcl.nn.backbones import Backbone


def as_samples(
    given: Any,
    settings: BasicSettings,
    backbone: Callable[[], Backbone | None],
    progress: Progress | None = None,
) -> NDArray[np.uint8]:
    """Images, or features of them, as the samples (n, *settings.image_shape) of a memory.

    backbone: called only if there are images whose features have to be computed.
    """
    spec = settings.backbone
    if spec is None:
        return as_pixels(given, settings.image_shape)
    array = as_array(given)
    if array.shape[1:] == spec.sample_shape and array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.ndim == 2:
        return _stored(array, spec)
    if array.ndim == 3:
        array = array[:, None]
    channels = spec.image_shape[0]
    if array.ndim != 4 or array.shape[1] not in (1, channels):
        raise BadInput(
            f"images have shape {array.shape}; this memory takes (n, {channels}, height, width), or features "
            f"(n, {spec.features})"
        )
    network = backbone()
    assert network is not None
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
