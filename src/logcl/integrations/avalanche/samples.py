"""The samples of Avalanche's data sets, before transforms, as those of a memory, and back.

An Avalanche data set is a tree: a sample starts at a leaf, and each node above applies its frozen transforms
and then its other ones. A memory absorbs samples after the frozen transforms only; what it replays goes
through the other ones like any sample of the data set. Samples of a memory with a backbone are features.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset, TransformGroups
from avalanche.benchmarks.utils.flat_data import FlatData
from avalanche.benchmarks.utils.transforms import TupleTransform
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from logcl.core.errors import BadInput
from logcl.core.features import from_bytes
from logcl.core.inputs import to_uint8
from logcl.core.pictures import fitted
from logcl.core.settings import BackboneSpec, ImageFit, ImageShape
from logcl.core.text import printable
from logcl.integrations.avalanche.features import FeatureSet
from logcl.memory.featured import as_features

Normalisation = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation per channel."""
LABELS_PER_TASK = 1_000_000
"""label = task · 1,000,000 + class: a memory holds one label per sample, and this one is readable."""
_ROUNDING = 1e-3  # how far undoing a normalisation may leave [0, 1]
_GREY, _COLOUR = ("1", "L"), ("RGB", "RGBA", "RGBX", "P", "LA", "PA", "CMYK", "YCbCr")


@dataclass(frozen=True)
class SampleFormat:
    """How a strategy sees the samples of a data set, which replayed samples have to imitate."""

    dtype: Any
    """Of images before transforms: of tensors or of arrays, or the mode that PIL images are converted to."""
    channels: Literal["none", "first", "last"]
    image_shape: ImageShape | None
    """(channels, height, width) that PIL images are resized to; None if all have the same size."""
    fit: ImageFit
    """How those of another aspect ratio get that shape."""
    normalised: Normalisation | None
    """What the data set itself normalises its images with."""
    classes: torch.dtype | None
    """None if classes are plain integers, not tensors."""
    transforms: TransformGroups | None
    """All that are not frozen, innermost first."""
    task_labels: bool
    """Whether minibatches are (x, y, t), not (x, y)."""
    collate: Callable[[list[Any]], Any]
    backbone: BackboneSpec | None = None
    """If samples are features (D,) that it has computed."""

    @staticmethod
    def of(
        data: AvalancheDataset,
        image_shape: ImageShape | None,
        normalised: Normalisation | None,
        fit: ImageFit = "crop",
        backbone: BackboneSpec | None = None,
    ) -> SampleFormat:
        """The format of a data set that is not empty; refuses samples that a memory cannot replay."""
        names = {name for name, values in data._data_attributes.items() if values.use_in_getitem}
        if more := names - {"targets_task_labels"}:
            raise BadInput(
                f"minibatches have {', '.join(sorted(more))}, which a memory cannot replay; remove them"
            )
        first = _untransformed(data, 0)
        if len(first) != 2:
            raise BadInput(f"samples have {len(first)} parts; give an image and a class per sample")
        image, target = first
        if backbone is None:
            dtype, channels = _layout(image, image_shape)
        else:
            dtype, channels = _feature_type(image, _path_to(data, 0)[1], backbone), "none"
        return SampleFormat(
            dtype,
            channels,
            image_shape,
            fit,
            normalised,
            target.dtype if isinstance(target, Tensor) else None,
            _transforms(data),
            bool(names),
            data.collate_fn,
            backbone,
        )

    def read(self, data: AvalancheDataset) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All samples of a data set for a memory: images (n, C, H, W) and labels of task and class (n,)."""
        tasks = getattr(data, "targets_task_labels", None)
        pixels, labels = np.empty((0, 0, 0, 0), np.uint8), np.empty(len(data), np.int64)
        for row in range(len(data)):
            image, target = _untransformed(data, row)
            found = self._to_pixels(image)
            if row == 0:
                pixels = np.empty((len(data), *found.shape), np.uint8)
            if found.shape != pixels.shape[1:]:
                raise BadInput(
                    f"image {row} has shape {found.shape}, the first one {pixels.shape[1:]}; give PIL images "
                    f"and image_shape=(channels, height, width) to resize them"
                )
            pixels[row] = found
            task, number = 0 if tasks is None else int(tasks[row]), int(target)
            if not 0 <= number < LABELS_PER_TASK or not 0 <= task < LABELS_PER_TASK:
                raise BadInput(
                    f"class {number} of task {task} cannot be stored; number both from 0 to "
                    f"{LABELS_PER_TASK - 1:,}"
                )
            labels[row] = task * LABELS_PER_TASK + number
        return pixels, labels

    def image(self, pixels: NDArray[np.uint8]) -> Any:
        """uint8 pixels (C, H, W) as an image of the data set, or bytes (1, 1, D) as its features."""
        values: NDArray[Any] = pixels
        if self.backbone is not None:
            values = from_bytes(pixels.reshape(-1)[: self.backbone.features], self.backbone.scale)
        elif self.normalised is not None:
            mean, deviation = _per_channel(self.normalised)
            values = (pixels / np.float32(255) - mean) / deviation
        elif _is_float(self.dtype):
            values = pixels / np.float32(255)
        if self.channels != "first" and self.backbone is None:
            values = values[0] if self.channels == "none" else values.transpose(1, 2, 0)
        values = np.ascontiguousarray(values)
        if isinstance(self.dtype, str):
            return Image.fromarray(values)
        is_tensor = isinstance(self.dtype, torch.dtype)
        return torch.from_numpy(values).to(self.dtype) if is_tensor else values.astype(self.dtype)

    def _to_pixels(self, image: Any) -> NDArray[np.uint8]:
        """An image of the data set as uint8 (C, H, W); its features as bytes (1, 1, D)."""
        if self.backbone is not None:
            array = image.numpy(force=True) if isinstance(image, Tensor) else np.asarray(image)
            stored: NDArray[np.uint8] = as_features(array[None], self.backbone, "crop", lambda: None)[0]
            return stored
        if isinstance(image, Image.Image):
            image = self._converted(image)
        array = image.numpy(force=True) if isinstance(image, Tensor) else np.asarray(image)
        if self.channels != "first":
            array = array[None] if self.channels == "none" else array.transpose(2, 0, 1)
        if self.normalised is not None:
            mean, deviation = _per_channel(self.normalised)
            if len(mean) not in (1, len(array)):
                raise BadInput(
                    f"normalised has {len(mean)} channels, but images have {len(array)}; give one mean and "
                    f"deviation per channel"
                )
            array = array * deviation + mean
            array = array.clip(0, 1) if array.min() > -_ROUNDING and array.max() < 1 + _ROUNDING else array
        if array.dtype.kind == "f" and (array.min() < 0 or array.max() > 1):
            raise BadInput(
                f"an image of the data set has values from {array.min():g} to {array.max():g}, outside of "
                f"[0, 1]; normalise in the benchmark's transforms, or give normalised=(mean, deviation)"
            )
        return to_uint8(array)

    def _converted(self, image: Image.Image) -> Image.Image:
        """A PIL image of the expected mode and size."""
        if image.mode not in _GREY and (self.dtype == "L" or image.mode not in _COLOUR):
            raise BadInput(
                f"a PIL image has mode {image.mode}, but {self.dtype} is expected; convert it, or give "
                f"image_shape=(3, height, width) if only some images are grey"
            )
        image = image.convert(self.dtype)
        if self.image_shape is None:
            return image
        _, height, width = self.image_shape
        return fitted(image, height, width, self.fit)


def _layout(image: Any, image_shape: ImageShape | None) -> tuple[Any, Literal["none", "first", "last"]]:
    """The dtype, or mode, of an image and where its channels are."""
    if isinstance(image, Image.Image):
        grey = image.mode in _GREY if image_shape is None else image_shape[0] == 1
        return ("L", "none") if grey else ("RGB", "last")
    if not isinstance(image, (Tensor, np.ndarray)) or image.ndim not in (2, 3):
        raise BadInput(
            f"samples are {type(image).__name__} of shape {tuple(np.shape(image))}; give PIL images, or "
            f"tensors or arrays of two or three dimensions"
        )
    # Photographs in arrays usually have their channels last.
    last = isinstance(image, np.ndarray) and image.shape[-1] <= 4
    return image.dtype, "none" if image.ndim == 2 else "last" if last else "first"


def _feature_type(features: Any, leaf: Any, backbone: BackboneSpec) -> Any:
    """The dtype of features; refuses images, and features of another backbone."""
    shape = tuple(getattr(features, "shape", ()))
    if shape != (backbone.features,) or not _is_float(features.dtype):
        raise BadInput(
            f"samples are {type(features).__name__} of shape {shape}, but this memory holds features "
            f"({backbone.features},); make the benchmark of features_of(data, backbone), not of images"
        )
    if isinstance(leaf, FeatureSet) and leaf.spec != backbone:
        raise BadInput(
            f"samples are features of another backbone, {printable(leaf.spec.name)} with weights "
            f"{leaf.spec.weights[:8]}; compute them with the one of this memory, "
            f"{printable(backbone.name)} with weights {backbone.weights[:8]}"
        )
    return features.dtype


def _per_channel(normalised: Normalisation) -> list[NDArray[np.float32]]:
    """Mean and standard deviation, each (C, 1, 1)."""
    return [np.asarray(values, np.float32).reshape(-1, 1, 1) for values in normalised]


def _is_float(dtype: Any) -> bool:
    if isinstance(dtype, torch.dtype):
        return dtype.is_floating_point
    return not isinstance(dtype, str) and np.dtype(dtype).kind not in "iu"


def _untransformed(data: AvalancheDataset, position: int) -> Sequence[Any]:
    """Image and class of a sample after frozen transforms only, without its task label."""
    nodes, leaf, position = _path_to(data, position)
    sample = leaf[position]
    for node in reversed(nodes):
        sample = node._frozen_transform_groups(sample, group_name="train")
    return list(sample)


def _path_to(data: AvalancheDataset, position: int) -> tuple[list[Any], Any, int]:
    """The nodes of the tree above a sample, outermost first, its leaf, and its position there."""
    node, nodes = data._flat_data, []
    while isinstance(node, FlatData):
        nodes.append(node)
        branch, position = node._get_idx(position)
        node = node._datasets[branch]
    return nodes, node, position


def _transforms(data: AvalancheDataset) -> TransformGroups | None:
    """The transforms of all samples that are not frozen, which must be the same for all."""
    paths = {}
    for position in range(len(data)):
        nodes, _, _ = _path_to(data, position)
        paths[tuple(map(id, nodes))] = nodes
    first, *others = [_transforms_along(nodes) for nodes in paths.values()]
    if any(other != first for other in others):
        raise BadInput(
            "samples of one experience have different transforms, but replayed ones can have only one; "
            "freeze those that differ with freeze_transforms()"
        )
    return functools.reduce(operator.add, first) if first else None


def _transforms_along(nodes: Sequence[Any]) -> list[TransformGroups]:
    found: list[TransformGroups] = []
    for node in reversed(nodes):
        if found and _parts(node._frozen_transform_groups["train"])[0] is not None:
            raise BadInput(
                "images have frozen transforms after others, and replay would swap their order; freeze the "
                "others as well with freeze_transforms()"
            )
        groups = node._transform_groups
        if any(part is not None for name in ("train", "eval") for part in _parts(groups[name])):
            found.append(groups)
    return found


def _parts(transform: Any) -> list[Any]:
    """The transforms of image and class; None for the identity."""
    return transform.transforms if isinstance(transform, TupleTransform) else [transform]
