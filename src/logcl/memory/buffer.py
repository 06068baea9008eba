"""The buffer: fewer than one unit of the newest samples, raw, until a local model can hold them.

It is stored in chunks. A new chunk absorbs the chunks before it that are no larger, so that tasks of one
sample neither rewrite the whole buffer each time nor leave thousands of chunks behind.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from logcl.allocation import Slot
from logcl.codecs import bits as codes
from logcl.core.errors import Damaged
from logcl.core.settings import MOST_SAMPLES, Frozen, ImageShape
from logcl.memory import claims
from logcl.memory.local_model import live_indices, live_mask
from logcl.memory.samples import Run, Samples
from logcl.nn import blobs


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
    """Raw samples as one blob: pixels deflated without loss, labels packed."""
    samples = chunk.samples
    label_bits = codes.integer_bits(int(samples.y.max()))
    channels, height, width = samples.x.shape[1:]
    about = Description(
        start=chunk.start, stop=chunk.stop, count=len(samples), image_shape=(channels, height, width),
        label_bits=label_bits,
    )  # fmt: skip
    claim = claims.of_samples(about.slot.samples, about.image_shape, claims.RAW)
    pixels = np.frombuffer(_deflated(samples.x, claim), np.uint8).copy()
    labels = codes.pack_integers(samples.y, label_bits)
    tensors = {"pixels": torch.from_numpy(pixels), "labels": torch.from_numpy(labels)}
    return blobs.pack(about, tensors | live_mask(about.slot, samples.indices))


def _deflated(pixels: NDArray[np.uint8], claim: int) -> bytes:
    content = np.ascontiguousarray(pixels).data
    deflated = zlib.compress(content, 9)
    if not claims.missing_bytes(claim, len(deflated)):
        return deflated
    # A reader must not inflate far more than it reads. Without matching, deflate shrinks by at most 8.
    plain = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    return plain.compress(content) + plain.flush()


def from_bytes(blob: bytes, image_shape: ImageShape, name: str) -> Chunk:
    """What `to_bytes` was given.

    Inflates no more than the description claims; what all parts claim is checked before, see `claims`.
    """
    about, tensors = blobs.unpack(blob, Description, name)
    size = about.count * int(np.prod(image_shape))
    arrays = {key: value.numpy() for key, value in tensors.items() if value.dtype == torch.uint8}
    labels, deflated = arrays.get("labels"), arrays.get("pixels")
    sound = (
        about.image_shape == image_shape
        and set(tensors) <= {"pixels", "labels", "live"}
        and about.count <= about.slot.samples <= 8 * len(blob)
        and deflated is not None
        and deflated.ndim == 1
        # Deflate shrinks by at most 1032: a larger claim is false, and refused before it is allocated.
        and size <= 1032 * len(deflated)
        and labels is not None
        and labels.shape == (-(-about.count * about.label_bits // 8),)
    )
    if not sound or labels is None or deflated is None:
        raise Damaged(f"{name} does not hold what it describes; `logcl verify` says what is intact")
    try:
        pixels = zlib.decompressobj().decompress(deflated.data, size + 1)
    except zlib.error as error:
        raise Damaged(f"{name} cannot be inflated ({error}); `logcl verify` says what is intact") from error
    if len(pixels) != size:
        raise Damaged(f"{name} does not hold what it describes; `logcl verify` says what is intact")
    x = np.frombuffer(pixels, np.uint8).reshape(about.count, *image_shape)
    y = codes.unpack_integers(labels, about.label_bits, about.count)
    indices = live_indices(about.slot, about.count, tensors, name)
    return Chunk(about.start, about.slot.stop, Samples(x, y, indices, (Run(len(y)),)))
