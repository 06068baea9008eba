"""Image files of many samples as codes: first bytes, which are alike in many files, are deflated together."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.codecs.base import Rows
from logcl.codecs.coding.bits import integer_bits, pack_integers, unpack_integers
from logcl.core.errors import Damaged

_MOST_HEAD = 16


@dataclass(frozen=True)
class FileCodes:
    """One code per sample: the number of its shell, then what its container made of it."""

    heads: NDArray[np.uint8]
    """First bytes of each code, (n, head); zeros after the end of a shorter code."""
    lengths: NDArray[np.int64]
    """Bytes of each code."""
    data: NDArray[np.uint8]
    """The other bytes of all codes."""
    name: str = "codes"
    """What an error message calls them."""

    @staticmethod
    def of(entries: Sequence[bytes]) -> FileCodes:
        """The codes, with as many bytes in the heads as make them smallest."""
        lengths = np.array([len(entry) for entry in entries], dtype=np.int64)
        padded = np.zeros((len(entries), _MOST_HEAD), dtype=np.uint8)
        for row, entry in enumerate(entries):
            first = entry[:_MOST_HEAD]
            padded[row, : len(first)] = np.frombuffer(first, np.uint8)

        def size(head: int) -> int:
            return len(_deflated(padded[:, :head])) + int(np.maximum(lengths - head, 0).sum())

        best = min(range(1, _MOST_HEAD + 1), key=size)
        rest = np.frombuffer(b"".join(entry[best:] for entry in entries), np.uint8)
        return FileCodes(np.ascontiguousarray(padded[:, :best]), lengths, rest)

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Where the other bytes of each code end in `data`."""
        return np.cumsum(np.maximum(self.lengths - self.heads.shape[1], 0))

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def entry(self, row: int) -> bytes:
        """The code of one sample."""
        head = self.heads.shape[1]
        end = int(self._ends[row])
        rest = max(int(self.lengths[row]) - head, 0)
        first: bytes = self.heads[row].tobytes()[: int(self.lengths[row])]
        return first + self.data[end - rest : end].tobytes()

    def select(self, rows: Rows) -> FileCodes:
        """The codes of some samples."""
        return replace(FileCodes.of([self.entry(int(row)) for row in rows]), name=self.name)

    def tensors(self) -> dict[str, Tensor]:
        """Heads, deflated column by column; lengths, packed; the rest."""
        bits = integer_bits(int(self.lengths.max()))
        lengths = np.append(np.uint8(bits), pack_integers(self.lengths, bits)).astype(np.uint8)
        heads = np.append(np.uint8(self.heads.shape[1]), np.frombuffer(_deflated(self.heads), np.uint8))
        arrays = {"heads": heads, "lengths": lengths, "data": self.data.copy()}
        return {key: torch.from_numpy(value) for key, value in arrays.items()}

    @staticmethod
    def restore(tensors: Mapping[str, Tensor], samples: int, name: str) -> FileCodes:
        """What `tensors` gave, checked against the number of samples."""
        broken = Damaged(f"{name} does not hold a file per sample; `logcl verify` says what is intact")
        if any(
            key not in tensors or tensors[key].dtype != torch.uint8 or tensors[key].dim() != 1
            for key in ("heads", "lengths", "data")
        ):
            raise broken
        heads, packed, data = (tensors[key].numpy() for key in ("heads", "lengths", "data"))
        if len(heads) < 2 or not 1 <= heads[0] <= _MOST_HEAD or not len(packed) or not 1 <= packed[0] <= 40:
            raise broken
        head, bits = int(heads[0]), int(packed[0])
        if len(packed) != 1 + -(-samples * bits // 8):
            raise broken
        lengths = unpack_integers(packed[1:], bits, samples)
        if lengths.min() < 1 or lengths.max() > len(data) + head:
            raise broken
        if int(np.maximum(lengths - head, 0).sum()) != len(data):
            raise broken
        inflate = zlib.decompressobj()
        try:
            content = inflate.decompress(heads[1:].tobytes(), samples * head + 1)
        except zlib.error as error:
            raise broken from error
        if len(content) != samples * head or inflate.unused_data or not inflate.eof:
            raise broken
        columns = np.frombuffer(content, np.uint8).reshape(head, samples)
        return FileCodes(np.ascontiguousarray(columns.T), lengths, data, name)


def _deflated(heads: NDArray[np.uint8]) -> bytes:
    return zlib.compress(np.ascontiguousarray(heads.T).tobytes(), 9)
