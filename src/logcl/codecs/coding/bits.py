"""Binary codes: computed from sample indices, assigned to samples, packed into bytes.

A code is a row of bits; decoders read it as ±1. On disk it is packed, eight bits per byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint8]
"""0 or 1, one row per sample: (n, bits)."""

Reals = NDArray[np.floating[Any]]

# Odd multipliers of splitmix64's finaliser (Steele, Lea and Flood 2014) and its golden-ratio increment.
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_INCREMENT = 0x9E3779B97F4A7C15
_BLOCK = 2**16  # integers unpacked at once; a multiple of eight, so that every block starts at a byte


def index_codes(indices: NDArray[np.integer[Any]], bits: int) -> Bits:
    """The code c(i) of each sample index, a function of the index alone; (n,) → (n, bits).

    Distinct for all indices below 2^min(bits, 64): the first min(bits, 64) bits are a bijection of the index
    (each round of `_mix` is invertible modulo 2^b). Further bits are independent hashes of the index and only
    increase distances.
    """
    head = min(bits, 64)
    values = np.asarray(indices).astype(np.uint64)
    if head < 64 and len(values) and int(values.max()) >> head:
        raise ValueError(f"index {int(values.max())} needs more than the {bits} bits of a code")
    words = [_mix(values, head)]
    for block in range(1, -(-bits // 64)):
        words.append(_mix(values + np.uint64(block * _INCREMENT % 2**64), 64))
    columns = np.stack(words, axis=1).astype("<u8").view(np.uint8).reshape(len(values), -1)
    return np.unpackbits(columns, axis=1, count=bits, bitorder="little")


def superposed_codes(indices: NDArray[np.integer[Any]], bits: int, width: int) -> Bits:
    """The code of each sample index as an address and signs; (n,), indices from 1 → (n, bits + width).

    With i - 1 = q · 2^bits + a, the first `bits` bits are a in binary, lowest first, and the other `width`
    are `orthogonal_codes` of q. Both are one-to-one, so codes are distinct up to index 2^(bits + width).
    Consecutive indices are spread evenly over the addresses.
    """
    values = np.asarray(indices).astype(np.uint64) - np.uint64(1)
    address = values & np.uint64(2**bits - 1)
    binary = (address[:, None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
    return np.concatenate([binary, orthogonal_codes(values >> np.uint64(bits), width)], axis=1)


def orthogonal_codes(numbers: NDArray[np.integer[Any]], width: int) -> Bits:
    """Distinct codes of the numbers q below 2^width, neighbours orthogonal as signs; (n,) → (n, width).

    With 2^m the largest power of two up to `width`: bit j is the parity of (q mod 2^m) AND j, a row of the
    Walsh-Hadamard matrix. Hence 2^k numbers starting at a multiple of 2^k have orthogonal signs in every
    block of 2^k columns, for k ≤ m, and a sum of vectors with these signs can be separated again; random
    signs would need more columns. Columns 1, 2, 4, … 2^(m-1) are q mod 2^m in binary; all others are also
    flipped by the bits of `index_codes(q >> m)`, which cancels within a block and keeps larger q distinct.
    """
    q = np.asarray(numbers).astype(np.uint64)
    m = width.bit_length() - 1
    parity = (q & np.uint64(2**m - 1))[:, None] & np.arange(width, dtype=np.uint64)
    for shift in (16, 8, 4, 2, 1):
        parity ^= parity >> np.uint64(shift)
    signs: Bits = (parity & np.uint64(1)).astype(np.uint8)
    others = np.setdiff1d(np.arange(width), 2 ** np.arange(m))
    signs[:, others] ^= index_codes(q >> np.uint64(m), width - m)
    return signs


def _mix(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """A bijection on integers of `bits` bits; changing one input bit flips about half of the output."""
    mask = np.uint64(2**bits - 1)
    shift = np.uint64(max(bits // 2, 1))
    values = values & mask
    for multiplier in (*_MULTIPLIERS, _INCREMENT):
        values = (values * np.uint64(multiplier)) & mask
        values = values ^ (values >> shift)
    return values


def nearest_free(embeddings: Reals, codes: Reals) -> NDArray[np.intp]:
    """Greedy assignment of n samples to n' ≥ n distinct codes; (n, b), (n', b) → (n,), row → code.

    In each round every unassigned sample requests the nearest free code, and each code accepts the nearest of
    its requests. Distances come from matrix products; nothing of size n × n' × b is allocated.
    """
    if len(codes) < len(embeddings):
        raise ValueError(f"{len(embeddings)} samples cannot share {len(codes)} codes")
    if embeddings.shape[1] != codes.shape[1]:
        raise ValueError(f"embeddings have {embeddings.shape[1]} numbers, codes {codes.shape[1]} bits")
    assignment = np.full(len(embeddings), -1, dtype=np.intp)
    waiting = np.arange(len(embeddings))
    free = np.arange(len(codes))
    while len(waiting):
        choice, distance = _nearest(embeddings[waiting], codes[free])
        order = np.lexsort((waiting, distance))
        _, first = np.unique(choice[order], return_index=True)
        winners = order[first]
        assignment[waiting[winners]] = free[choice[winners]]
        free = np.delete(free, choice[winners])
        waiting = np.delete(waiting, winners)
    return assignment


def _nearest(embeddings: Reals, codes: Reals, block: int = 4096) -> tuple[NDArray[np.intp], Reals]:
    """The nearest code of each embedding and its squared distance, computed in blocks of rows.

    |e - c|² = |e|² - 2 e·c + |c|², and |c|² = b for every ±1 code.
    """
    choices, distances = [], []
    for start in range(0, len(embeddings), block):
        rows = embeddings[start : start + block]
        products = rows @ codes.T
        choice = products.argmax(axis=1)
        choices.append(choice)
        best = np.take_along_axis(products, choice[:, None], axis=1)[:, 0]
        distances.append((rows**2).sum(axis=1) - 2 * best + codes.shape[1])
    return np.concatenate(choices), np.concatenate(distances)


def signs(bits: Bits) -> NDArray[np.float32]:
    """Bits as the ±1 that decoders read."""
    return bits.astype(np.float32) * 2 - 1


def pack(bits: Bits) -> NDArray[np.uint8]:
    """The bits of each sample as bytes: (n, bits) → (n, ceil(bits / 8))."""
    return np.packbits(bits, axis=1, bitorder="little")


def unpack(packed: NDArray[np.uint8], bits: int) -> Bits:
    """The inverse of `pack`: (n, ceil(bits / 8)) → (n, bits)."""
    return np.unpackbits(packed, axis=1, count=bits, bitorder="little")


def integer_bits(largest: int) -> int:
    """Bits per integer from 0 to `largest`."""
    return int(largest).bit_length()


def pack_integers(values: NDArray[np.integer[Any]], bits: int) -> NDArray[np.uint8]:
    """Non-negative integers of `bits` bits each, packed into bytes: (n,) → (ceil(n · bits / 8),)."""
    wide = np.asarray(values, dtype=np.int64)
    if len(wide) and (wide.min() < 0 or int(wide.max()) >> bits):
        raise ValueError(f"values from {wide.min()} to {wide.max()} do not fit {bits} bits")
    shifts = np.arange(bits, dtype=np.int64)
    return np.packbits((wide[:, None] >> shifts & 1).astype(np.uint8).ravel(), bitorder="little")


def unpack_integers(packed: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.int64]:
    """The inverse of `pack_integers`: → (count,)."""
    values = np.zeros(count, dtype=np.int64)
    for start in range(0, count if bits else 0, _BLOCK):  # in blocks: each bit takes eight bytes meanwhile
        stop = min(start + _BLOCK, count)
        part = packed[start * bits // 8 : -(-stop * bits // 8)]
        flat = np.unpackbits(part, count=(stop - start) * bits, bitorder="little").reshape(-1, bits)
        values[start:stop] = (flat.astype(np.int64) << np.arange(bits)).sum(axis=1)
    return values
