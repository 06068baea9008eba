"""A memory as a data set for PyTorch's `DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from logcl.core.images import rows_at_once
from logcl.core.sharding import Shard
from logcl.memory.featured import of_user
from logcl.memory.random_access import RandomAccess
from logcl.memory.snapshot import Snapshot


class ReplayDataset(Dataset[tuple[Tensor, int]]):
    """A memory as a map-style data set: position p is the p-th oldest sample.

    `DataLoader` fetches whole batches through `__getitems__`, so each level decodes once per batch; images
    are kept decoded after the first quarter, unless they are too many. The data set can be sent to workers,
    forked or spawned.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._samples = RandomAccess(snapshot)

    def __len__(self) -> int:
        return self.snapshot.n

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        if not -len(self) <= position < len(self):
            raise IndexError(f"position {position} is outside a memory of {len(self)} samples")
        return self.__getitems__([position % len(self)])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[tuple[Tensor, int]]:
        """Several samples at once; `DataLoader` calls this by itself."""
        x, y = self._samples.fetch(np.asarray(positions, dtype=np.intp))
        return list(zip(self._values(x), self.snapshot.label_values[y].tolist(), strict=True))

    def _values(self, x: Tensor) -> Tensor:
        return of_user(x, self.snapshot.settings.backbone)


class ReplayStream(IterableDataset[tuple[Tensor, Any]]):
    """A memory as an iterable data set: each epoch yields every sample once, in a new order.

    Each worker of a `DataLoader` has its own shard of the samples, so none is decoded twice per epoch. With a
    `batch_size` it yields whole batches, for `DataLoader(stream, batch_size=None)`: the fastest way, because
    nothing is collated sample by sample. The order comes from torch's random state.
    """

    def __init__(self, snapshot: Snapshot, batch_size: int | None, shard: Shard) -> None:
        self.snapshot, self.batch_size, self.shard = snapshot, batch_size, shard
        self._samples = RandomAccess(snapshot)
        self._epochs = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        worker = get_worker_info()
        shard = self.shard
        if worker is None:
            seed = int(torch.empty((), dtype=torch.int64).random_())
        else:
            shard = shard.split(worker.id, worker.num_workers)
            seed = worker.seed
        self._epochs += 1  # a persistent worker keeps its seed
        random = np.random.default_rng([seed % 2**64, self._epochs])
        order = random.permutation(shard.positions(self.snapshot.n))
        values = self.snapshot.label_values
        rows = self.batch_size or 1
        block = max(rows_at_once(self.snapshot.settings.image_shape) // rows, 1) * rows
        for start in range(0, len(order), block):
            x, classes = self._samples.fetch(order[start : start + block])
            y = torch.from_numpy(values[classes])
            if self.batch_size is None:
                yield from zip(self._values(x), y.tolist(), strict=True)
                continue
            for at in range(0, len(y), self.batch_size):
                yield self._values(x[at : at + self.batch_size]), y[at : at + self.batch_size]

    def _values(self, x: Tensor) -> Tensor:
        return of_user(x, self.snapshot.settings.backbone)
