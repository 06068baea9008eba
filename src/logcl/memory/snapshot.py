"""A memory at one moment, loaded: what replay reads. Frozen, so that it may cross threads and processes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.allocation import layout
from logcl.core.images import rows_at_once
from logcl.core.inputs import Label, distinct
from logcl.core.progress import Progress, Silent
from logcl.core.sharding import ALL, Shard
from logcl.memory.buffer import Chunk
from logcl.memory.choosing import Choice
from logcl.memory.featured import of_user
from logcl.memory.ledger import Entry
from logcl.memory.local_model import LocalModel
from logcl.memory.manifest import Manifest
from logcl.memory.random_access import RandomAccess
from logcl.memory.samples import Run, Samples, concatenate, raw
from logcl.memory.settings import Settings

_PIECE = 2**24  # bytes of decoded images at once


@dataclass(frozen=True)
class Snapshot:
    """Manifest, local models (oldest first), buffer and ledger that belong together."""

    manifest: Manifest
    levels: tuple[LocalModel, ...]
    chunks: tuple[Chunk, ...]
    """The buffer, oldest first."""
    ledger: tuple[Entry, ...]
    digest: str
    """Of the memory's whole content."""
    stored: int = 0
    """Bytes of its parts in the file."""

    @property
    def settings(self) -> Settings:
        """The memory's settings."""
        return self.manifest.settings

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels by class number."""
        return self.manifest.classes

    @cached_property
    def buffer(self) -> Samples:
        """The newest samples, raw."""
        nothing = raw(np.empty((0, *self.settings.image_shape), np.uint8), np.empty(0, np.int64))
        return concatenate([nothing, *(chunk.samples for chunk in self.chunks)])

    @cached_property
    def live(self) -> NDArray[np.int64]:
        """The indices of all samples held, ascending (n,): everything that replays draws from these."""
        return np.concatenate([*(level.indices for level in self.levels), self.buffer.indices])

    @property
    def n(self) -> int:
        """Samples held, in levels and buffer."""
        return len(self.live)

    def chosen(self, settings: Settings, choice: Choice | None) -> Snapshot:
        """The same samples, with the codec that was chosen."""
        if choice is None:
            return self
        manifest = self.manifest.model_copy(update={"settings": settings, "choice": choice})
        return replace(self, manifest=manifest)

    def for_training(self) -> Snapshot:
        """The same samples, decoded as a classifier learns most from them."""
        return replace(self, levels=tuple(level.for_training() for level in self.levels))

    @property
    def runs(self) -> tuple[Run, ...]:
        """The history of all samples, oldest first."""
        return tuple(run for level in self.levels for run in level.runs) + self.buffer.runs

    @property
    def label_values(self) -> NDArray[np.int64]:
        """What replay yields for each class number: the label itself if labels are integers."""
        if self.classes and isinstance(self.classes[0], int):
            return np.array(self.classes, dtype=np.int64)
        return np.arange(len(self.classes), dtype=np.int64)

    def fetch(self, indices: NDArray[np.integer[Any]]) -> tuple[Tensor, NDArray[np.int64]]:
        """Samples by index, in the order given: uint8 images (m, C, H, W) and class numbers (m,).

        Each level decodes its samples in one go (the paper's steps 2 to 4).
        """
        indices = np.asarray(indices)
        places = np.searchsorted(self.live, indices).clip(max=self.n - 1)
        if (missing := indices[self.live[places] != indices]).size:
            raise IndexError(
                f"the memory holds no sample {missing[0]}; it holds {self.n}, with indices up to "
                f"{self.manifest.last}"
            )
        x = torch.empty((len(indices), *self.settings.image_shape), dtype=torch.uint8)
        y = np.empty(len(indices), dtype=np.int64)
        held = 0
        for level in self.levels:
            held = level.slot.stop
            mine = np.flatnonzero((indices >= level.slot.start) & (indices <= held))
            if len(mine) == len(indices) > 0:
                return level.replay(indices)
            if len(mine):
                x[mine], y[mine] = level.replay(indices[mine])
        mine = np.flatnonzero(indices > held)
        rows = np.searchsorted(self.buffer.indices, indices[mine])
        x[mine], y[mine] = torch.from_numpy(self.buffer.x[rows]), self.buffer.y[rows]
        return x, y

    def pieces(
        self, progress: Progress | None = None, shard: Shard = ALL
    ) -> Iterator[tuple[int, Tensor, NDArray[np.int64]]]:
        """All samples of a shard in order, a few thousand at a time: 0-based start, images, class numbers."""
        mine = self.live[shard.positions(self.n)]
        with (progress or Silent()).track("replaying the memory", max(len(mine), 1)) as advance:
            shape = self.settings.image_shape
            piece = min(4 * rows_at_once(shape), max(_PIECE // math.prod(shape), 1))
            for start in range(0, len(mine), piece):
                indices = mine[start : start + piece]
                yield start, *self.fetch(indices)
                advance(len(indices))

    def check(self, progress: Progress | None = None) -> None:
        """Raise `Damaged` if some sample cannot be replayed."""
        at_once = min(max(_PIECE // math.prod(self.settings.image_shape), 1), 4096)
        with (progress or Silent()).track("checking", max(self.n, 1)) as advance:
            for level in self.levels:
                level.replay(level.indices[:1])
                for start in range(0, len(level), at_once):
                    rows = np.arange(start, min(start + at_once, len(level)))
                    level.codec.check(level.codes, rows)
                    advance(len(rows))

    def everything(
        self, progress: Progress | None = None, shard: Shard = ALL
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """All samples of a shard in order, decoded once: C · H · W bytes per sample."""
        count = len(shard.positions(self.n))
        x = torch.empty((count, *self.settings.image_shape), dtype=torch.uint8)
        y = np.empty(count, dtype=np.int64)
        for start, images, classes in self.pieces(progress, shard):
            x[start : start + len(classes)], y[start : start + len(classes)] = images, classes
        return x, y

    def batches(self, batch_size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless batches of samples drawn uniformly: float images in [0, 1] and labels."""
        values, samples = self.label_values, RandomAccess(self)
        while True:
            drawn = torch.randint(1, self.n + 1, (batch_size,), generator=generator).numpy() - 1
            x, y = samples.fetch(drawn)
            yield of_user(x, self.settings.backbone), torch.from_numpy(values[y])


def inconsistency(now: Snapshot) -> str | None:
    """What contradicts R1 to R3, the manifest or the settings; None if nothing does."""
    manifest, shape = now.manifest, now.settings.image_shape
    slots = layout(manifest.last, now.settings.unit)
    found = [level.slot for level in now.levels]
    held = slots[-1].stop if slots else 0
    # A level or chunk of which every sample was forgotten is not there.
    if not set(found) <= set(slots) or len(set(found)) < len(found) or now.n != manifest.n:
        return f"its levels and buffer are not those of {manifest.n} samples"
    if any(level.about.codec.shape != shape for level in now.levels):
        return "a level holds images of another shape"
    if not all(now.settings.codec.describes(level.about.codec) for level in now.levels):
        return "a level has another codec than the settings"
    try:
        distinct(now.classes)
    except ValueError as error:
        return f"its classes are not distinct ({error})"
    edges = [(held + 1, held), *((chunk.start, chunk.stop) for chunk in now.chunks)]
    if any(after[0] <= before[1] for before, after in pairwise(edges)) or edges[-1][1] > manifest.last:
        return "its buffer starts or ends elsewhere, or has two chunks in one place"
    used = [number for level in now.levels for number in level.about.classes]
    used += np.unique(now.buffer.y).tolist()
    if used and not 0 <= min(used) <= max(used) < len(now.classes):
        return "it has labels of classes that do not exist"
    # Tasks before format 4 have no entries.
    if any(after.start != before.stop + 1 for before, after in pairwise(now.ledger)):
        return "its ledger has gaps"
    ends = [entry.stop for entry in now.ledger[-1:]]
    if any(entry.stop < entry.start for entry in now.ledger) or ends not in ([], [manifest.last]):
        return f"its ledger does not end with sample {manifest.last}"
    return None
