"""The samples of a memory as an Avalanche data set."""

from __future__ import annotations

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

Pieces = list[tuple[NDArray[np.uint8], NDArray[np.int64]]]
"""Images (m, C, H, W) and labels (m,)."""


class Decoder:
    """Decodes samples of a memory; levels that have not changed since the last call are not decoded again."""

    def __init__(self) -> None:
        self._levels: list[tuple[LocalModel, NDArray[np.uint8], NDArray[np.int64]]] = []

    def first(self, now: Snapshot, count: int) -> Pieces:
        """The `count` oldest samples."""
        known, self._levels = self._levels, []
        for level in now.levels:
            if not (decoded := [found for found in known if found[0] is level]):
                images, numbers = level.replay()
                decoded = [(level, images.numpy(), numbers)]
            self._levels += decoded
        pieces = []
        for x, y in [*(found[1:] for found in self._levels), (now.buffer.x, now.buffer.y)]:
            pieces.append((x[:count], now.label_values[y[:count]]))
            count -= len(pieces[-1][1])
        return pieces

    def some(self, now: Snapshot, indices: NDArray[np.int64]) -> Pieces:
        """The samples with these indices (1..n)."""
        self._levels = []
        rows = rows_at_once(now.settings.image_shape)
        fetched = (now.fetch(indices[start : start + rows]) for start in range(0, len(indices), rows))
        return [(images.numpy(), now.label_values[numbers]) for images, numbers in fetched]


class ReplayedSamples(Dataset[tuple[Any, Any]]):
    """Decoded images and their classes, in the format of another data set."""

    def __init__(self, images: NDArray[np.uint8], targets: list[int], sample_format: SampleFormat) -> None:
        self.images, self.targets, self.format = images, targets, sample_format

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position: int) -> tuple[Any, Any]:
        target, dtype = self.targets[position], self.format.classes
        image = self.format.image(self.images[position])
        return image, target if dtype is None else torch.tensor(target, dtype=dtype)


def replay_dataset(pieces: Pieces, sample_format: SampleFormat) -> AvalancheDataset:
    """Decoded samples as an Avalanche data set of the given format."""
    tasks, targets = np.divmod(np.concatenate([labels for _, labels in pieces]), LABELS_PER_TASK)
    leaves = [ReplayedSamples(x, (y % LABELS_PER_TASK).tolist(), sample_format) for x, y in pieces if len(y)]
    attributes = [DataAttribute(targets.tolist(), "targets")]
    if sample_format.task_labels:
        attributes.append(TaskLabels(tasks.tolist()))
    kind = TaskAwareSupervisedClassificationDataset if sample_format.task_labels else ClassificationDataset
    return kind(
        leaves,
        data_attributes=attributes,
        transform_groups=copy.copy(sample_format.transforms),  # the data set selects the current group in it
        collate_fn=sample_format.collate,
    )
