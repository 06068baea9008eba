"""The samples of a memory as an Avalanche data set."""

from __future__ import annotations

import bisect
import copy
from typing import Any

import numpy as np
import torch
from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute, TaskLabels
from avalanche.benchmarks.utils.classification_dataset import (
    ClassificationDataset,
    TaskAwareSupervisedClassificationDataset,
)
from numpy.typing import NDArray
from torch.utils.data import Dataset

from logcl.core.images import rows_at_once
from logcl.integrations.avalanche.samples import LABELS_PER_TASK, SampleFormat
from logcl.memory.local_model import LocalModel
from logcl.memory.snapshot import Snapshot

Decoded = tuple[list[NDArray[np.uint8]], NDArray[np.int64]]
"""Images (n, C, H, W), split into several arrays, and labels (n,)."""


class Decoder:
    """Decodes samples of a memory; levels that have not changed since the last call are not decoded again."""

    def __init__(self) -> None:
        self._levels: list[tuple[LocalModel, NDArray[np.uint8], NDArray[np.int64]]] = []

    def first(self, now: Snapshot, count: int) -> Decoded:
        """The `count` oldest samples."""
        known, self._levels = self._levels, []
        for level in now.levels:
            if not (decoded := [found for found in known if found[0] is level]):
                images, numbers = level.replay()
                decoded = [(level, images.numpy(), numbers)]
            self._levels += decoded
        arrays = [*(images for _, images, _ in self._levels), now.buffer.x]
        numbers = np.concatenate([*(numbers for _, _, numbers in self._levels), now.buffer.y])
        starts = np.cumsum([0, *map(len, arrays)]).tolist()
        parts = [array[: max(count - start, 0)] for array, start in zip(arrays, starts, strict=False)]
        return parts, now.label_values[numbers[:count]]

    def some(self, now: Snapshot, indices: NDArray[np.int64]) -> Decoded:
        """The samples with these indices (1..n)."""
        self._levels = []
        rows = rows_at_once(now.settings.image_shape)
        pieces = [now.fetch(indices[start : start + rows]) for start in range(0, len(indices), rows)]
        return [x.numpy() for x, _ in pieces], now.label_values[np.concatenate([y for _, y in pieces])]


class ReplayedSamples(Dataset[tuple[Any, Any]]):
    """Decoded images and their classes, in the format of another data set."""

    def __init__(
        self, images: list[NDArray[np.uint8]], targets: list[int], sample_format: SampleFormat
    ) -> None:
        self.images, self.targets, self.format = images, targets, sample_format
        self._stops = np.cumsum([len(array) for array in images]).tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position: int) -> tuple[Any, Any]:
        part = bisect.bisect_right(self._stops, position)
        pixels = self.images[part][position - self._stops[part]]  # counted from the end
        target, dtype = self.targets[position], self.format.classes
        return self.format.image(pixels), target if dtype is None else torch.tensor(target, dtype=dtype)


def replay_dataset(decoded: Decoded, sample_format: SampleFormat) -> AvalancheDataset:
    """Decoded samples as an Avalanche data set of the given format."""
    images, labels = decoded
    tasks, targets = np.divmod(labels, LABELS_PER_TASK)
    leaf = ReplayedSamples(images, targets.tolist(), sample_format)
    attributes = [DataAttribute(leaf.targets, "targets")]
    if sample_format.task_labels:
        attributes.append(TaskLabels(tasks.tolist()))
    kind = TaskAwareSupervisedClassificationDataset if sample_format.task_labels else ClassificationDataset
    return kind(
        [leaf],
        data_attributes=attributes,
        transform_groups=copy.copy(sample_format.transforms),  # the data set selects the current group in it
        collate_fn=sample_format.collate,
    )
