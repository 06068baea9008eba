"""Avalanche's data sets and a memory's pixels: samples as they are before transforms, and back again.

An Avalanche data set is a tree: a sample starts at a leaf, and on its way up each level applies its frozen
transforms and then its others. A memory takes samples that only the frozen ones were applied to, and what it
replays goes through the others like any sample of the data set.
"""

from __future__ import annotations

import bisect
import copy
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute, TaskLabels, TransformGroups
from avalanche.benchmarks.utils.classification_dataset import (
    ClassificationDataset,
    TaskAwareSupervisedClassificationDataset,
)
from avalanche.benchmarks.utils.flat_data import FlatData
from avalanche.benchmarks.utils.transforms import TupleTransform
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from logcl.core.errors import BadInput
from logcl.core.images import rows_at_once
from logcl.core.inputs import to_uint8
from logcl.core.settings import ImageShape
from logcl.memory.local_model import LocalModel
from logcl.memory.snapshot import Snapshot

Normalisation = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation of each channel."""

_TASK = 1_000_000  # label = task · 1,000,000 + class: a memory has one label a sample, and people can read it
_ROUNDING = 1e-3  # by which undoing a normalisation may leave [0, 1]
_GREY, _COLOUR = ("1", "L"), ("RGB", "RGBA", "RGBX", "P", "LA", "PA", "CMYK", "YCbCr")
_NOT_IMAGES = "samples must be PIL images, or tensors or arrays of two or three dimensions"


@dataclass(frozen=True)
class Form:
    """What kind of object the images of a data set are, before transforms."""

    kind: Literal["PIL", "tensor", "array"]
    dtype: Any
    """Mode of a PIL image, or the type of the numbers."""
    channels: Literal["none", "first", "last"]

    @staticmethod
    def of(image: Any, image_shape: ImageShape | None = None) -> Form:
        """The form of one image; `image_shape` says how many channels PIL images get."""
        if isinstance(image, Image.Image):
            grey = image.mode in _GREY if image_shape is None else image_shape[0] == 1
            return Form("PIL", "L" if grey else "RGB", "none" if grey else "last")
        if not isinstance(image, (Tensor, np.ndarray)) or image.ndim not in (2, 3):
            raise BadInput(f"{_NOT_IMAGES}, not {type(image).__name__} of shape {tuple(np.shape(image))}")
        if isinstance(image, Tensor):
            return Form("tensor", image.dtype, "none" if image.ndim == 2 else "first")
        last = image.shape[-1] <= 4  # as photographs are kept in arrays
        return Form("array", image.dtype, "none" if image.ndim == 2 else "last" if last else "first")

    def array(self, image: Any, image_shape: ImageShape | None) -> NDArray[Any]:
        """An image of this form as (C, H, W); PIL images are brought to `image_shape` if one is given."""
        if isinstance(image, Image.Image):
            if image.mode not in _GREY and (self.dtype == "L" or image.mode not in _COLOUR):
                raise BadInput(
                    f"a PIL image has mode {image.mode} where {self.dtype} is expected; convert it, or give "
                    f"image_shape=(3, height, width) if only some images are grey"
                )
            image = image.convert(self.dtype)
            if image_shape is not None:
                _, height, width = image_shape
                image = image.resize((width, height), Image.Resampling.LANCZOS)
        if isinstance(image, Tensor):
            image = image.numpy(force=True)
        array = np.asarray(image)
        if self.channels == "none":
            return array[None]
        return array.transpose(2, 0, 1) if self.channels == "last" else array

    def image(self, pixels: NDArray[np.uint8], normalised: Normalisation | None) -> Any:
        """The uint8 pixels (C, H, W) of a memory as an image of this form."""
        values: NDArray[Any] = pixels
        if normalised is not None:
            mean, deviation = _by_channel(normalised)
            values = (pixels / np.float32(255) - mean) / deviation
        elif self.kind != "PIL" and not _is_whole(self.dtype):
            values = pixels / np.float32(255)
        if self.channels != "first":
            values = values[0] if self.channels == "none" else values.transpose(1, 2, 0)
        values = np.ascontiguousarray(values)
        if self.kind == "PIL":
            return Image.fromarray(values)
        return torch.from_numpy(values).to(self.dtype) if self.kind == "tensor" else values.astype(self.dtype)


@dataclass(frozen=True)
class Look:
    """How the samples of a data set look to a strategy: what replayed ones must look like as well."""

    form: Form
    classes: torch.dtype | None
    """Of tensors; None where classes are plain integers."""
    transforms: TransformGroups | None
    """All that are not frozen, innermost first."""
    tasks: bool
    """Whether minibatches have task labels: (x, y, t), not (x, y)."""
    collate: Callable[[list[Any]], Any]

    @staticmethod
    def of(data: AvalancheDataset, image_shape: ImageShape | None = None) -> Look:
        """The look of a data set that has samples; refuses what a memory could not replay."""
        names = {name for name, values in data._data_attributes.items() if values.use_in_getitem}
        if more := names - {"targets_task_labels"}:
            raise BadInput(f"minibatches have {', '.join(sorted(more))}, which a memory cannot replay")
        first = bare_sample(data, 0)
        if len(first) != 2:
            raise BadInput(f"samples have {len(first)} parts; a memory holds an image and its class")
        image, target = first
        classes = target.dtype if isinstance(target, Tensor) else None
        return Look(Form.of(image, image_shape), classes, _transforms(data), bool(names), data.collate_fn)


def bare_sample(data: AvalancheDataset, position: int) -> Sequence[Any]:
    """Image and class of a sample, without task label and without transforms that are not frozen."""
    levels, leaf, position = _way(data, position)
    sample = leaf[position]
    for level in reversed(levels):
        sample = level._frozen_transform_groups(sample, group_name="train")
    return list(sample)


def _way(data: AvalancheDataset, position: int) -> tuple[list[Any], Any, int]:
    """The levels of the tree above a sample, outermost first, its leaf, and its position there."""
    node, levels = data._flat_data, []
    while isinstance(node, FlatData):
        levels.append(node)
        branch, position = node._get_idx(position)
        node = node._datasets[branch]
    return levels, node, position


def _transforms(data: AvalancheDataset) -> TransformGroups | None:
    """What is not frozen on the way of all samples, which must be the same."""
    ways = {}
    for position in range(len(data)):
        levels, _, _ = _way(data, position)
        ways[tuple(map(id, levels))] = levels
    first, *others = [_on_the_way(levels) for levels in ways.values()]
    if any(other != first for other in others):
        raise BadInput(
            "samples of one experience have different transforms, and replayed ones cannot have both; "
            "freeze what differs with freeze_transforms()"
        )
    return functools.reduce(operator.add, first) if first else None


def _on_the_way(levels: Sequence[Any]) -> list[TransformGroups]:
    found: list[TransformGroups] = []
    for level in reversed(levels):
        if found and _parts(level._frozen_transform_groups["train"])[0] is not None:
            raise BadInput(
                "images have frozen transforms after ones that are not frozen, and a memory would swap them; "
                "freeze those as well with freeze_transforms()"
            )
        groups = level._transform_groups
        if any(part is not None for name in ("train", "eval") for part in _parts(groups[name])):
            found.append(groups)
    return found


def _parts(transform: Any) -> list[Any]:
    """A transform of images, of classes, ...; None where nothing is done."""
    if transform is None:
        return [None]
    return transform.transforms if isinstance(transform, TupleTransform) else [transform]


def read(
    data: AvalancheDataset, form: Form, image_shape: ImageShape | None, normalised: Normalisation | None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All samples as a memory takes them: uint8 images (n, C, H, W) and labels that tell the task as well."""
    tasks = getattr(data, "targets_task_labels", None)
    pixels, labels = np.empty((0, 0, 0, 0), np.uint8), np.empty(len(data), np.int64)
    for row in range(len(data)):
        image, target = bare_sample(data, row)
        array = form.array(image, image_shape)
        if row == 0:
            pixels = np.empty((len(data), *array.shape), np.uint8)
        if array.shape != pixels.shape[1:]:
            raise BadInput(
                f"image {row} has shape {array.shape}, the first one {pixels.shape[1:]}; give "
                f"image_shape=(channels, height, width), and PIL images are brought to it"
            )
        pixels[row] = _pixels(array, normalised)
        labels[row] = _label(0 if tasks is None else int(tasks[row]), int(target))
    return pixels, labels


def _pixels(array: NDArray[Any], normalised: Normalisation | None) -> NDArray[np.uint8]:
    if normalised is not None:
        mean, deviation = _by_channel(normalised)
        array = array * deviation + mean
        array = array.clip(0, 1) if array.min() > -_ROUNDING and array.max() < 1 + _ROUNDING else array
    if array.dtype.kind == "f" and (array.min() < 0 or array.max() > 1):
        raise BadInput(
            f"an image of the data set reaches from {array.min():g} to {array.max():g}, not from 0 to 1; let "
            f"the benchmark's transforms normalise images, or say normalised=(mean, deviation)"
        )
    return to_uint8(array)


def _by_channel(normalised: Normalisation) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    mean, deviation = (np.asarray(values, np.float32).reshape(-1, 1, 1) for values in normalised)
    return mean, deviation


def _is_whole(dtype: Any) -> bool:
    if isinstance(dtype, torch.dtype):
        return not dtype.is_floating_point
    return bool(np.dtype(dtype).kind in "iu")


def _label(task: int, target: int) -> int:
    if not 0 <= target < _TASK or not 0 <= task < _TASK:
        raise BadInput(f"class {target} of task {task} cannot be kept; both must be from 0 to {_TASK - 1:,}")
    return task * _TASK + target


@dataclass
class Decoder:
    """Decodes what a memory holds; levels that did not change since the last time are not decoded again."""

    levels: list[tuple[LocalModel, NDArray[np.uint8], NDArray[np.int64]]] = field(default_factory=list)

    def first(self, now: Snapshot, count: int) -> tuple[list[NDArray[np.uint8]], NDArray[np.int64]]:
        """The `count` oldest samples: uint8 images, in several arrays, and labels."""
        known, self.levels = self.levels, []
        for level in now.levels:
            same = next((found for found in known if found[0] is level), None)
            if same is None:
                images, numbers = level.replay()
                same = level, images.numpy(), numbers
            self.levels.append(same)
        arrays = [*(images for _, images, _ in self.levels), now.buffer.x]
        numbers = np.concatenate([*(numbers for _, _, numbers in self.levels), now.buffer.y])
        starts = np.cumsum([0, *map(len, arrays)]).tolist()
        parts = [array[: max(count - start, 0)] for array, start in zip(arrays, starts, strict=False)]
        return parts, now.label_values[numbers[:count]]

    def some(
        self, now: Snapshot, indices: NDArray[np.int64]
    ) -> tuple[list[NDArray[np.uint8]], NDArray[np.int64]]:
        """Samples by index, images as in `first`."""
        self.levels = []
        rows = rows_at_once(now.settings.image_shape)
        pieces = [now.fetch(indices[start : start + rows]) for start in range(0, len(indices), rows)]
        return [x.numpy() for x, _ in pieces], now.label_values[np.concatenate([y for _, y in pieces])]


class Replayed(Dataset[tuple[Any, Any]]):
    """Decoded images, in several arrays, and classes, in the form of another data set."""

    def __init__(
        self,
        images: list[NDArray[np.uint8]],
        targets: list[int],
        look: Look,
        normalised: Normalisation | None,
    ) -> None:
        self.images, self.targets, self.look, self.normalised = images, targets, look, normalised
        self._stops = np.cumsum([len(array) for array in images]).tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position: int) -> tuple[Any, Any]:
        part = bisect.bisect_right(self._stops, position)
        pixels = self.images[part][position - self._stops[part]]  # counted from the end
        target, kind = self.targets[position], self.look.classes
        image = self.look.form.image(pixels, self.normalised)
        return image, target if kind is None else torch.tensor(target, dtype=kind)


def replayed(
    images: list[NDArray[np.uint8]],
    labels: NDArray[np.int64],
    look: Look,
    normalised: Normalisation | None,
) -> AvalancheDataset:
    """Decoded samples as an Avalanche data set that looks like another one."""
    tasks, targets = np.divmod(labels, _TASK)
    leaf = Replayed(images, targets.tolist(), look, normalised)
    attributes = [DataAttribute(leaf.targets, "targets")]
    if look.tasks:
        attributes.append(TaskLabels(tasks.tolist()))
    kind = TaskAwareSupervisedClassificationDataset if look.tasks else ClassificationDataset
    return kind(
        [leaf],
        data_attributes=attributes,
        transform_groups=copy.copy(look.transforms),  # the data set sets the group in use in it
        collate_fn=look.collate,
    )
