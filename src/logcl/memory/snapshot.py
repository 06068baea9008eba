"""A memory at one moment, loaded: what replay reads. Frozen, so that it may cross threads and processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from logcl.allocation import layout
from logcl.core.images import rows_at_once
from logcl.core.inputs import Label, distinct
from logcl.core.progress import Progress, Silent
from logcl.core.sharding import ALL, Shard
from logcl.memory.local_model import LocalModel
from logcl.memory.samples import Run, Samples
from logcl.memory.settings import Settings
from logcl.nn.images import to_unit


@dataclass(frozen=True)
class Snapshot:
    """Settings, classes, local models (oldest first) and buffer that belong together."""

    settings: Settings
    classes: tuple[Label, ...]
    levels: tuple[LocalModel, ...]
    buffer: Samples
    chunks: tuple[int, ...]
    """Index of the first sample of each chunk of the buffer, ascending."""
    digest: str
    """Of the memory's whole content."""

    @property
    def n(self) -> int:
        """Samples held, in levels and buffer."""
        return sum(level.slot.samples for level in self.levels) + len(self.buffer)

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
        """Samples by index 1..n, in the order asked for: uint8 images (m, C, H, W) and class numbers (m,).

        Each level decodes its share in one go (the paper's steps 2 to 4).
        """
        indices = np.asarray(indices)
        if len(indices) and not (indices.min() >= 1 and indices.max() <= self.n):
            raise IndexError(
                f"sample indices reach from 1 to {self.n}; asked for {indices.min()}..{indices.max()}"
            )
        x = torch.empty((len(indices), *self.settings.image_shape), dtype=torch.uint8)
        y = np.empty(len(indices), dtype=np.int64)
        held = 0
        for level in self.levels:
            held = level.slot.stop
            mine = np.flatnonzero((indices >= level.slot.start) & (indices <= held))
            if len(mine):
                x[mine], y[mine] = level.replay(indices[mine])
        mine = np.flatnonzero(indices > held)
        rows = indices[mine] - held - 1
        x[mine], y[mine] = torch.from_numpy(self.buffer.x[rows]), self.buffer.y[rows]
        return x, y

    def pieces(
        self, progress: Progress | None = None, shard: Shard = ALL
    ) -> Iterator[tuple[int, Tensor, NDArray[np.int64]]]:
        """All samples of a share in sample order, a few thousand at a time: 0-based start, images, class
        numbers.
        """
        mine = shard.positions(self.n)
        with (progress or Silent()).track("replaying", max(len(mine), 1)) as advance:
            piece = 4 * rows_at_once(self.settings.image_shape)
            for start in range(0, len(mine), piece):
                indices = mine[start : start + piece]
                yield start, *self.fetch(np.array(indices) + 1)
                advance(len(indices))

    def everything(
        self, progress: Progress | None = None, shard: Shard = ALL
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """All samples of a share in sample order, decoded once: as many times C · H · W bytes."""
        count = len(shard.positions(self.n))
        x = torch.empty((count, *self.settings.image_shape), dtype=torch.uint8)
        y = np.empty(count, dtype=np.int64)
        for start, images, classes in self.pieces(progress, shard):
            x[start : start + len(classes)], y[start : start + len(classes)] = images, classes
        return x, y

    def batches(self, batch_size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless batches of samples drawn with i ~ U{1..n}: float images in [0, 1] and labels."""
        values = self.label_values
        while True:
            drawn = torch.randint(1, self.n + 1, (batch_size,), generator=generator).numpy()
            x, y = self.fetch(drawn)
            yield to_unit(x), torch.from_numpy(values[y])


def inconsistency(now: Snapshot, n: int) -> str | None:
    """What contradicts R1 to R3 or the settings in a memory that claims n samples; None if nothing does."""
    settings = now.settings
    if now.n != n or tuple(level.slot for level in now.levels) != layout(n, settings.unit):
        return f"its levels and buffer are not those of {n} samples"
    if any(level.about.decoder.image_shape != settings.image_shape for level in now.levels):
        return "a level holds images of another shape"
    try:
        distinct(now.classes)
    except ValueError as error:
        return f"its classes cannot be told apart ({error})"
    held = now.levels[-1].slot.stop if now.levels else 0
    # Ascending from the first sample behind the levels: the next task trusts them.
    if now.chunks and not held + 1 == now.chunks[0] <= now.chunks[-1] <= n:
        return "its buffer begins or ends elsewhere"
    if len(set(now.chunks)) < len(now.chunks):
        return "its buffer has two chunks in one place"
    used = [number for level in now.levels for number in level.about.classes] + now.buffer.y.tolist()
    if used and not 0 <= min(used) <= max(used) < len(now.classes):
        return "it has labels of classes that do not exist"
    return None


class ReplayDataset(Dataset[tuple[Tensor, int]]):
    """A memory as a map-style data set of n samples, for any `DataLoader`.

    Position p is sample index p + 1. `DataLoader` fetches whole batches through `__getitems__`, so that
    each level decodes once a batch; the data set may be sent to workers, forked or spawned.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def __len__(self) -> int:
        return self.snapshot.n

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        if not -len(self) <= position < len(self):
            raise IndexError(f"position {position} is outside a memory of {len(self)} samples")
        return self.__getitems__([position % len(self)])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[tuple[Tensor, int]]:
        """Several samples at once; `DataLoader` calls this by itself."""
        x, y = self.snapshot.fetch(np.asarray(positions) + 1)
        return list(zip(to_unit(x), self.snapshot.label_values[y].tolist(), strict=True))


class ReplayStream(IterableDataset[tuple[Tensor, Any]]):
    """A memory as an iterable data set: each pass gives every sample once, in another order.

    Workers of a `DataLoader` have a share of the samples each, and none is decoded twice in a pass. With a
    `batch_size` it yields whole batches, for `DataLoader(stream, batch_size=None)`: the fastest way, because
    nothing is put together sample by sample. The order comes from torch's random state, as that of every
    shuffling loader.
    """

    def __init__(self, snapshot: Snapshot, batch_size: int | None, shard: Shard) -> None:
        self.snapshot, self.batch_size, self.shard = snapshot, batch_size, shard
        self._passes = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        worker = get_worker_info()
        shard = self.shard
        if worker is None:
            seed = int(torch.empty((), dtype=torch.int64).random_())
        else:
            shard = shard.split(worker.id, worker.num_workers)
            seed = worker.seed
        self._passes += 1  # a worker that stays for several passes keeps its seed
        order = (
            np.random.default_rng([seed % 2**64, self._passes]).permutation(shard.positions(self.snapshot.n))
            + 1
        )
        values = self.snapshot.label_values
        rows = self.batch_size or 1
        block = max(rows_at_once(self.snapshot.settings.image_shape) // rows, 1) * rows
        for start in range(0, len(order), block):
            x, classes = self.snapshot.fetch(order[start : start + block])
            y = torch.from_numpy(values[classes])
            if self.batch_size is None:
                yield from zip(to_unit(x), y.tolist(), strict=True)
                continue
            for at in range(0, len(y), self.batch_size):
                yield to_unit(x[at : at + self.batch_size]), y[at : at + self.batch_size]
