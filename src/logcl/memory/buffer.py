"""The buffer: fewer than one unit of the newest samples, without loss, until a local model can hold them.

It is stored in chunks. A new chunk absorbs the chunks before it that are no larger, so that tasks of one
sample neither rewrite the whole buffer each time nor leave thousands of chunks behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pydantic import Field

from logcl.allocation import Slot
from logcl.codecs.coding import bits as codes
from logcl.core.errors import Damaged
from logcl.core.settings import MOST_SAMPLES, Frozen, ImageShape
from logcl.memory import claims, lossless
from logcl.memory.local_model import live_indices, live_mask
from logcl.memory.samples import Run, Samples
from logcl.nn import blobs

_PER_BYTE = 8  # sample indices that a byte of a chunk can justify


class Description(Frozen):
    """What a chunk says about itself."""

    start: int = Field(ge=1, lt=MOST_SAMPLES)
    """Sample index that the chunk begins with."""
    stop: int | None = Field(None, ge=1, lt=MOST_SAMPLES)
    """The last one; None (up to format 3) if no sample is missing."""
    count: int = Field(ge=1, lt=MOST_SAMPLES)
    """Samples that are held."""
    image_shape: ImageShape
    label_bits: int = Field(ge=0, le=31)

    @property
    def slot(self) -> Slot:
        """The sample indices of the chunk."""
        return Slot(0, self.start, self.start + self.count - 1 if self.stop is None else self.stop)


@dataclass(frozen=True)
class Chunk:
    """Raw samples whose indices lie between `start` and `stop`."""

    start: int
    stop: int
    samples: Samples


def chunk_start(starts: Sequence[int], new: int, stop: int) -> int:
    """Where the chunk that ends before `stop` begins when samples from `new` on arrive.

    `starts` are the first samples of the chunks so far, ascending; each holds up to the next one's start.
    """
    for start in reversed(starts):
        if new - start > stop - new:
            break
        new = start
    return new


def to_bytes(chunk: Chunk) -> bytes:
    """Raw samples as one blob: images compressed without loss, labels packed.

    Equal samples give equal bytes, except that another version of Pillow may compress differently.
    """
    samples = chunk.samples
    label_bits = codes.integer_bits(int(samples.y.max()))
    channels, height, width = samples.x.shape[1:]
    about = Description(
        start=chunk.start, stop=chunk.stop, count=len(samples), image_shape=(channels, height, width),
        label_bits=label_bits,
    )  # fmt: skip
    arrays = lossless.compress(samples.x) | {"labels": codes.pack_integers(samples.y, label_bits)}
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
    tensors |= live_mask(about.slot, samples.indices)
    claim = claims.of_samples(about.slot.samples, about.image_shape, claims.RAW)
    stored = sum(tensor.nbytes for tensor in tensors.values())
    missing = max(claims.missing_bytes(claim, stored), about.slot.samples // _PER_BYTE + 1 - stored)
    if missing > 0:  # a reader would refuse the file
        tensors["padding"] = torch.zeros(missing, dtype=torch.uint8)
    return blobs.pack(about, tensors)


def from_bytes(blob: bytes, image_shape: ImageShape, name: str) -> Chunk:
    """The inverse of `to_bytes`.

    Decodes no more than the description claims. The claims of all parts were checked before: see `claims`.
    """
    about, tensors = blobs.unpack(blob, Description, name)
    arrays = {key: value.numpy() for key, value in tensors.items() if value.dtype == torch.uint8}
    labels = arrays.get("labels")
    sound = (
        about.image_shape == image_shape
        and set(tensors) <= {lossless.WEBP, lossless.DEFLATED, "labels", "live", "padding"}
        and about.count <= about.slot.samples <= _PER_BYTE * len(blob)
        and labels is not None
        and labels.shape == (-(-about.count * about.label_bits // 8),)
    )
    if not sound or labels is None:
        raise Damaged(f"{name} does not hold what it describes; `logcl verify` says what is intact")
    indices = live_indices(about.slot, about.count, tensors, name)
    y = codes.unpack_integers(labels, about.label_bits, about.count)
    x = lossless.decompress(arrays, about.count, image_shape, name)
    return Chunk(about.start, about.slot.stop, Samples(x, y, indices, (Run(len(y)),)))
