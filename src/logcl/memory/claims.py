"""What a memory file may claim: the memory and time that reading takes must be justified by its bytes.

Every part claims bytes: a level or chunk those of its decoded samples, the ledger those of its entries. The
claims of all parts together may exceed the bytes that are stored by a factor only; this is checked before
anything is decoded, because a few kilobytes of codes could otherwise claim terabytes of images.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

from logcl.core.settings import ImageShape

_SMALL, _RATIO = 2**27, 64  # claims that need no justification, and those of a stored byte
_BESIDE_PIXELS = 128  # bytes of a sample beside its pixels: indices, label, place in a permutation
_FILE_AT_ONCE = 5  # bytes per value of an image, beside those that need no justification
_WRITTEN_SMALL, _WRITTEN_RATIO = 2**25, 48  # stricter, for the sum of all levels to stay below the above
RAW, COPIED, ENTRIES = 2, 1 / 8, 16
"""Weights of claims: the buffer is decoded and copied once; a level whose codec copies codes is decoded a few
images at a time, so mostly time counts; a ledger entry in memory is far larger than its JSON."""


class Claim(NamedTuple):
    """What one part claims."""

    claimed: int
    stored: int
    """Bytes of the part."""
    weights: str | None = None
    """Digest of the part with the weights that the part needs."""
    at_once: int = 0
    """Bytes that decoding one sample takes: of all parts, only the largest counts."""


def of_samples(samples: int, image_shape: ImageShape, weight: float = 1, effort: int = 0) -> int:
    """Bytes that decoded samples claim; `effort`: those that the time stands for, see `Codec.effort`."""
    return max(samples, 0) * (int(weight * math.prod(image_shape)) + _BESIDE_PIXELS + effort)


def at_once(image_shape: ImageShape, weight: float) -> int:
    """Bytes that opening one file takes, in which decoders copy the image several times."""
    return _FILE_AT_ONCE * math.prod(image_shape) if weight == COPIED else 0


def missing_bytes(claimed: int, stored: int) -> int:
    """Bytes by which a part to be written is too small for its claim; 0 except for nearly uniform images."""
    return max(-(-(claimed - _WRITTEN_SMALL) // _WRITTEN_RATIO) - stored, 0)


def unjustified(claims: Collection[Claim], weights: dict[str, int]) -> str | None:
    """What the parts of a memory claim in excess; None if nothing. `weights`: bytes by digest."""
    claimed = sum(claim.claimed for claim in claims) + max((claim.at_once for claim in claims), default=0)
    used = {claim.weights for claim in claims}
    stored = sum(claim.stored for claim in claims)
    stored += sum(size for digest, size in weights.items() if digest in used)
    if claimed <= _SMALL + _RATIO * stored:
        return None
    return f"its {stored:,} bytes claim samples that take {claimed:,} bytes, more than they can hold"
