"""Samples in any order: once enough of them were drawn, all are decoded and kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from logcl.memory.snapshot import Snapshot

_WORTH = (
    0.25  # share of the samples after which the others are decoded too: codes are decoded fastest in bulk
)
_KEPT, _KEPT_PER_BYTE = 2**24, 48  # bytes of decoded images, and per byte stored; larger memories keep none


class RandomAccess:
    """Fetches samples of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._fetched = 0
        self._all: tuple[Tensor, NDArray[np.int64]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the decoded images: a worker that needs them decodes them itself."""
        return {**self.__dict__, "_all": None, "_fetched": 0}

    def fetch(self, positions: NDArray[np.integer[Any]]) -> tuple[Tensor, NDArray[np.int64]]:
        """Samples by position, the oldest is 0: uint8 images (m, C, H, W) and class numbers (m,)."""
        now, positions = self.snapshot, np.array(positions)  # torch has no negative strides
        self._fetched += len(positions)
        if self._all is None and self._fetched > _WORTH * now.n and self._fits():
            self._all = now.everything()
        if self._all is None:
            return now.fetch(now.live[positions])
        return self._all[0][positions], self._all[1][positions]

    def _fits(self) -> bool:
        size = self.snapshot.n * math.prod(self.snapshot.settings.image_shape)
        return size <= _KEPT + _KEPT_PER_BYTE * self.snapshot.stored
