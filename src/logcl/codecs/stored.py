"""The codes of one level, as the memory file keeps them: computed, packed bits, or entropy-coded integers.

All three answer one question: what does the decoder have to be given for these samples?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.codecs import bits as codes
from logcl.codecs import entropy

FINENESS = 4
"""Integers to one unit of a decoder's input: symbols are read as quarters."""

Rows = NDArray[np.integer[Any]]


class Codes(Protocol):
    """Where decoders get their inputs from."""

    def inputs(self, rows: Rows) -> NDArray[np.float32]:
        """What the decoder is given for some samples of the level, by 0-based row."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """What has to be kept."""
        ...


@dataclass(frozen=True)
class IndexCodes:
    """Functions of the sample index alone: nothing is kept."""

    start: int
    """Index of the level's first sample."""
    length: int
    address: int = 0
    """How many of the numbers are the address of a row that several samples share."""

    def inputs(self, rows: Rows) -> NDArray[np.float32]:
        """±1, (m, length)."""
        indices = np.asarray(rows) + self.start
        if self.address:
            return codes.signs(codes.superposed_codes(indices, self.address, self.length - self.address))
        return codes.signs(codes.index_codes(indices, self.length))

    def tensors(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}


@dataclass(frozen=True)
class BinaryCodes:
    """Learned bits, eight to the byte."""

    packed: NDArray[np.uint8]
    """(n, ceil(length / 8))."""
    length: int

    def inputs(self, rows: Rows) -> NDArray[np.float32]:
        """±1, (m, length)."""
        return codes.signs(codes.unpack(self.packed[rows], self.length))

    def tensors(self) -> dict[str, Tensor]:
        """The packed bits."""
        return {"codes": torch.from_numpy(self.packed)}


@dataclass(frozen=True)
class QuantisedCodes:
    """Integers at their entropy; an image may have several rows of them, one for each of its blocks."""

    coded: entropy.Coded
    blocks: int
    name: str = "codes"
    """What a message calls them if they do not decode."""

    def inputs(self, rows: Rows) -> NDArray[np.float32]:
        """Quarters of integers, (m · blocks, length)."""
        every = (np.asarray(rows)[:, None] * self.blocks + np.arange(self.blocks)).ravel()
        symbols: NDArray[np.float32] = entropy.decode(self.coded, every, self.name).astype(np.float32)
        symbols /= FINENESS
        return symbols

    def tensors(self) -> dict[str, Tensor]:
        """Tables and streams."""
        return {f"codes.{key}": torch.from_numpy(value) for key, value in self.coded.tensors().items()}

    @staticmethod
    def restore(
        tensors: Mapping[str, Tensor], samples: int, blocks: int, length: int, name: str
    ) -> QuantisedCodes:
        """What `tensors` gave, checked against what it is said to hold."""
        mine = {k.removeprefix("codes."): v for k, v in tensors.items() if k.startswith("codes.")}
        # numpy does not know all of torch's types, but all that codes are kept in.
        arrays = {k: v.numpy() for k, v in mine.items() if not v.is_floating_point()}
        return QuantisedCodes(entropy.from_tensors(arrays, samples * blocks, length, name), blocks, name)
