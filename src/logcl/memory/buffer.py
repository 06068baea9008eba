"""The buffer: fewer than one unit of the newest samples, raw, until a local model can hold them.

It is kept in chunks. A new chunk swallows the chunks before it that are no larger, so that tasks of one
sample neither rewrite the whole buffer each time nor leave thousands of chunks behind.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field

from logcl.codecs import bits as codes
from logcl.core.errors import Damaged
from logcl.core.settings import MOST_SAMPLES, Frozen, ImageShape
from logcl.memory.samples import Samples, raw
from logcl.nn import blobs

_SMALL, _RATIO = 2**26, 128  # pixels may be so many bytes, or so many times their deflated ones


class Chunk(Frozen):
    """What a chunk says of itself."""

    start: int = Field(ge=1, lt=MOST_SAMPLES)
    """Sample index of the first sample."""
    count: int = Field(ge=1, lt=MOST_SAMPLES)
    image_shape: ImageShape
    label_bits: int = Field(ge=0, le=31)


def chunk_start(starts: Sequence[int], new: int, stop: int) -> int:
    """Where the chunk that ends before `stop` begins when samples from `new` on arrive.

    `starts` are the first samples of the chunks so far, ascending; each holds up to the next one's start.
    """
    for start in reversed(starts):
        if new - start > stop - new:
            break
        new = start
    return new


def to_bytes(start: int, samples: Samples) -> bytes:
    """Raw samples as one blob: pixels deflated without loss, labels packed."""
    label_bits = codes.integer_bits(int(samples.y.max()))
    channels, height, width = samples.x.shape[1:]
    about = Chunk(
        start=start, count=len(samples), image_shape=(channels, height, width), label_bits=label_bits
    )
    pixels = np.frombuffer(_deflated(samples.x.tobytes()), np.uint8).copy()
    labels = codes.pack_integers(samples.y, label_bits)
    return blobs.pack(about, {"pixels": torch.from_numpy(pixels), "labels": torch.from_numpy(labels)})


def _deflated(pixels: bytes) -> bytes:
    deflated = zlib.compress(pixels, 9)
    if len(pixels) <= max(_SMALL, _RATIO * len(deflated)):
        return deflated
    # Whoever opens a memory must not fill theirs with nothing. Without matching, deflate shrinks by 8.
    plain = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    return plain.compress(pixels) + plain.flush()


def from_bytes(blob: bytes, image_shape: ImageShape, name: str) -> tuple[int, Samples]:
    """Sample index of the first sample, and the samples. Inflates no more than the description claims."""
    about, tensors = blobs.unpack(blob, Chunk, name)
    size = about.count * int(np.prod(image_shape))
    arrays = {key: value.numpy() for key, value in tensors.items() if value.dtype == torch.uint8}
    labels, deflated = arrays.get("labels"), arrays.get("pixels")
    sound = (
        about.image_shape == image_shape
        and deflated is not None
        and deflated.ndim == 1
        # Deflate shrinks by at most 1032: a larger claim is a lie, refused before it is allocated.
        and size <= min(1032 * len(deflated), max(_SMALL, _RATIO * len(deflated)))
        and labels is not None
        and labels.shape == (-(-about.count * about.label_bits // 8),)
    )
    if not sound or labels is None or deflated is None:
        raise Damaged(f"{name} does not hold what it describes; `logcl verify` says what is intact")
    try:
        pixels = zlib.decompressobj().decompress(deflated.tobytes(), size + 1)
    except zlib.error as error:
        raise Damaged(f"{name} cannot be inflated ({error}); `logcl verify` says what is intact") from error
    if len(pixels) != size:
        raise Damaged(f"{name} does not hold what it describes; `logcl verify` says what is intact")
    x = np.frombuffer(pixels, np.uint8).reshape(about.count, *image_shape)
    return about.start, raw(x, codes.unpack_integers(labels, about.label_bits, about.count))
