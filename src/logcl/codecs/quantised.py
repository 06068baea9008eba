"""Codes of integers, entropy coded, and what codecs that store them have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.codecs.base import Codec, Rows
from logcl.codecs.coding import entropy
from logcl.codecs.decoding import decode
from logcl.core.errors import Damaged
from logcl.core.images import rows_at_once

FINENESS = 4
"""Integers per unit of a decoder's input: symbols are read as quarters."""
ROUNDING = 0.4
"""Fraction of a step that is added before rounding down: values near zero become zero, which saves more bytes
than it costs in quality."""
_LARGEST_FACTOR = 2**16
_SYMBOLS = 2**23  # entropy decoded at once


class QuantisedCodec(Codec):
    """A codec whose codes are integers; what they mean is up to `images`."""

    blocks: int = 1
    """Rows of integers per image."""
    widest: int = 0
    """Values per image in the widest layer of what `images` runs through."""

    @property
    @abc.abstractmethod
    def length(self) -> int:
        """Integers per row."""

    @abc.abstractmethod
    def images(self, inputs: Tensor) -> Tensor:
        """Quarters of integers (n · blocks, length) → images (n, C, H, W) in [0, 1]."""

    def decode(self, codes: QuantisedCodes, rows: Rows) -> Tensor:
        """Images (m, C, H, W)."""
        shape, size = self.spec.shape, self.blocks * self.length
        at_once = rows_at_once(shape, max(self.widest, size))
        # Many streams are entropy decoded at once: one after the other takes almost as long for each.
        group = at_once * max(_SYMBOLS // (at_once * size), 1)
        images = torch.empty((len(rows), *shape), dtype=torch.uint8)
        for start in range(0, len(rows), group):
            symbols = codes.symbols(rows[start : start + group]).reshape(-1, size)

            def given(some: Rows, symbols: NDArray[np.int16] = symbols) -> NDArray[np.float32]:
                return codes.scaled(symbols[some].reshape(-1, self.length))

            every = np.arange(len(symbols))
            images[start : start + group] = decode(self.images, given, every, shape, max(self.widest, size))
        return images

    def check(self, codes: QuantisedCodes, rows: Rows) -> None:
        """Entropy decode them; what follows cannot fail."""
        some = max(_SYMBOLS // (self.blocks * self.length), 1)
        blocks = np.arange(self.blocks)
        for start in range(0, len(rows), some):
            for part in np.array_split(blocks, -(-self.blocks * self.length // _SYMBOLS)):
                codes.symbols(rows[start : start + some], part)

    def coarsen(self, codes: QuantisedCodes, factor: int = 2) -> QuantisedCodes:
        """Integers in larger steps; the decoder reads them as it did before."""
        return codes.coarsened(factor)

    def restore_codes(
        self, tensors: Mapping[str, Tensor], indices: NDArray[np.int64], level_bytes: int, name: str
    ) -> QuantisedCodes:
        """Tables and streams."""
        del level_bytes  # every stream has its own bytes
        return QuantisedCodes.restore(tensors, len(indices), self.blocks, self.length, name)


@dataclass(frozen=True)
class QuantisedCodes:
    """Entropy-coded integers; an image may have several rows of them, one for each of its blocks."""

    coded: entropy.Coded
    blocks: int = 1
    factor: int = 1
    """What coarsening has multiplied the steps by."""
    name: str = "codes"
    """What an error message calls them."""

    @staticmethod
    def of(symbols: Tensor, samples: int, made: Callable[[int], None] | None = None) -> QuantisedCodes:
        """Encode symbols (samples · blocks, length); `made` counts samples."""
        values = symbols.clamp(-entropy.LARGEST, entropy.LARGEST).to(torch.int16).numpy()
        blocks = len(symbols) // samples
        report = None if made is None else lambda rows: made(rows // blocks)
        return QuantisedCodes(entropy.encode(values, report), blocks)

    def __len__(self) -> int:
        return self.coded.samples // self.blocks

    def symbols(self, rows: Rows, blocks: Rows | None = None) -> NDArray[np.int16]:
        """Stored integers (m · blocks, length), by default of all blocks of each image."""
        blocks = np.arange(self.blocks) if blocks is None else blocks
        every = (np.asarray(rows)[:, None] * self.blocks + blocks).ravel()
        return entropy.decode(self.coded, every, self.name)

    def scaled(self, symbols: NDArray[np.int16]) -> NDArray[np.float32]:
        """What the decoder is given for stored integers: quarters."""
        inputs: NDArray[np.float32] = symbols.astype(np.float32)
        inputs *= self.factor / FINENESS
        return inputs

    def inputs(self, rows: Rows) -> NDArray[np.float32]:
        """What the decoder is given: quarters of integers, (m · blocks, length)."""
        return self.scaled(self.symbols(rows))

    def select(self, rows: Rows) -> QuantisedCodes:
        """The codes of some samples; lossless, but their tables are counted anew."""
        return replace(self, coded=entropy.encode(self.symbols(rows)))

    def coarsened(self, factor: int) -> QuantisedCodes:
        """Steps `factor` times as large, up to a size at which every symbol is zero."""
        factor = min(factor, _LARGEST_FACTOR // self.factor)
        symbols = self.symbols(np.arange(len(self))).astype(np.int32)
        coarse = np.sign(symbols) * np.floor(np.abs(symbols) / factor + ROUNDING)
        return replace(self, coded=entropy.encode(coarse.astype(np.int16)), factor=self.factor * factor)

    def tensors(self) -> dict[str, Tensor]:
        """Tables and streams."""
        found = {key: torch.from_numpy(value) for key, value in self.coded.tensors().items()}
        return found if self.factor == 1 else {**found, "factor": torch.tensor([self.factor])}

    @staticmethod
    def restore(
        tensors: Mapping[str, Tensor], samples: int, blocks: int, length: int, name: str
    ) -> QuantisedCodes:
        """What `tensors` gave, checked against the number of samples and the length of a code."""
        factor = tensors.get("factor", torch.ones(1, dtype=torch.int64))
        if factor.shape != (1,) or factor.dtype != torch.int64 or not 1 <= int(factor) <= _LARGEST_FACTOR:
            raise Damaged(f"{name} has steps of an impossible size; `logcl verify` says what is intact")
        # numpy does not know all of torch's types, but all that codes are stored in.
        arrays = {
            key: value.numpy()
            for key, value in tensors.items()
            if key != "factor" and not value.is_floating_point()
        }
        coded = entropy.from_tensors(arrays, samples * blocks, length, name)
        return QuantisedCodes(coded, blocks, int(factor), name)


def joined(parts: Sequence[QuantisedCodes]) -> QuantisedCodes:
    """The integers of all samples, with common tables; they must have been coarsened alike."""
    first = parts[0]
    symbols = [part.symbols(np.arange(len(part))) for part in parts]
    return replace(first, coded=entropy.encode(np.concatenate(symbols)))
