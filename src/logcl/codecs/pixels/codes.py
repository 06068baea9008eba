"""Codes of symbols that are coded in context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from logcl.codecs.base import Rows
from logcl.codecs.coding import ans
from logcl.codecs.pixels.coder import ContextCoder
from logcl.codecs.pixels.model import Symbols
from logcl.core.errors import Damaged


@dataclass(frozen=True)
class ContextCodes:
    """The symbols of some images; a stream holds those of several images."""

    coder: ContextCoder
    streams: ans.Streams
    samples: int
    name: str = "codes"
    """What an error message calls them."""

    def __len__(self) -> int:
        return self.samples

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(array.nbytes for array in self.streams.arrays().values())

    def symbols(self, rows: Rows) -> Symbols:
        """Of some images, (m, positions)."""
        return self.coder.decode(self.streams, rows, self.samples, self.name)

    def select(self, rows: Rows) -> ContextCodes:
        """The codes of some images; lossless, but images of one stream are not the same as before."""
        rows = np.asarray(rows)
        streams = self.coder.encode_symbols(lambda some: self.symbols(rows[some]), len(rows))
        return replace(self, streams=streams, samples=len(rows))

    def tensors(self) -> dict[str, Tensor]:
        """Lengths and words of the streams."""
        return {key: torch.from_numpy(array) for key, array in self.streams.arrays().items()}

    @staticmethod
    def restore(coder: ContextCoder, tensors: Mapping[str, Tensor], samples: int, name: str) -> ContextCodes:
        """What `tensors` gave, checked against the number of images."""
        if any(tensors[key].dtype != torch.uint8 for key in ("lengths", "words") if key in tensors):
            raise Damaged(f"{name} has streams of another type; `logcl verify` says what is intact")
        arrays = {key: value.numpy() for key, value in tensors.items() if value.dtype == torch.uint8}
        streams = ans.restore(arrays, -(-samples // coder.together), name)
        return ContextCodes(coder, streams, samples, name)


def joined(parts: Sequence[ContextCodes]) -> ContextCodes | None:
    """All images of several codes, if no stream has to be coded anew; all have the same coder."""
    *others, last = parts
    if any(len(part) % part.coder.together for part in others):
        return None
    streams = ans.join([part.streams for part in parts])
    return replace(last, streams=streams, samples=sum(map(len, parts)))
