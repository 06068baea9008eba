"""The samples of Avalanche's data sets, as they are before transforms.

An Avalanche data set is a tree: a sample starts at a leaf, and each node above applies its frozen transforms
and then its other ones. A memory absorbs samples after the frozen transforms only; what it replays goes
through the other ones like any sample of the data set.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset, TransformGroups
from avalanche.benchmarks.utils.flat_data import FlatData
from avalanche.benchmarks.utils.transforms import TupleTransform
from numpy.typing import NDArray
from torch import Tensor

from logcl.core.errors import BadInput
from logcl.core.settings import ImageShape
from logcl.integrations.avalanche.image_format import ImageFormat, Normalisation

LABELS_PER_TASK = 1_000_000
"""label = task · 1,000,000 + class: a memory holds one label per sample, and this one is readable."""


@dataclass(frozen=True)
class SampleFormat:
    """How a strategy sees the samples of a data set, which replayed samples have to imitate."""

    images: ImageFormat
    classes: torch.dtype | None
    """None if classes are plain integers, not tensors."""
    transforms: TransformGroups | None
    """All that are not frozen, innermost first."""
    task_labels: bool
    """Whether minibatches are (x, y, t), not (x, y)."""
    collate: Callable[[list[Any]], Any]

    @staticmethod
    def of(
        data: AvalancheDataset, image_shape: ImageShape | None, normalised: Normalisation | None
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
        return SampleFormat(
            ImageFormat.of(image, image_shape, normalised),
            target.dtype if isinstance(target, Tensor) else None,
            _transforms(data),
            bool(names),
            data.collate_fn,
        )

    def read(self, data: AvalancheDataset) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All samples of a data set for a memory: images (n, C, H, W) and labels of task and class (n,)."""
        tasks = getattr(data, "targets_task_labels", None)
        pixels, labels = np.empty((0, 0, 0, 0), np.uint8), np.empty(len(data), np.int64)
        for row in range(len(data)):
            image, target = _untransformed(data, row)
            found = self.images.to_pixels(image)
            if row == 0:
                pixels = np.empty((len(data), *found.shape), np.uint8)
            if found.shape != pixels.shape[1:]:
                raise BadInput(
                    f"image {row} has shape {found.shape}, the first one {pixels.shape[1:]}; give PIL images "
                    f"and image_shape=(channels, height, width) to resize them"
                )
            pixels[row] = found
            labels[row] = _label(0 if tasks is None else int(tasks[row]), int(target))
        return pixels, labels


def _label(task: int, target: int) -> int:
    if not 0 <= target < LABELS_PER_TASK or not 0 <= task < LABELS_PER_TASK:
        raise BadInput(
            f"class {target} of task {task} cannot be stored; number both from 0 to {LABELS_PER_TASK - 1:,}"
        )
    return task * LABELS_PER_TASK + target


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
