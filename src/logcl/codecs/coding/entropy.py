"""Entropy coding of the integers that quantised codes consist of.

symbols (n, channels) ── tables (frequency of each value per channel) ── streams of bytes

The coder is the range variant of asymmetric numeral systems (Duda 2013, "rANS"): one 24-bit state per stream,
byte-wise renormalisation, frequencies that sum to 4096. All streams of a level are coded in parallel, one
symbol of each at a time, so the Python loop runs once per channel, not once per sample. Decoding uses integer
arithmetic only: the same file gives the same symbols on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logcl.codecs.coding.bits import integer_bits, pack_integers, unpack_integers
from logcl.core.errors import Damaged

LARGEST = 1023
"""Symbols lie between -LARGEST and LARGEST."""

Symbols = NDArray[np.int16]
"""One row per sample: (n, channels)."""

_PRECISION = 12
_TOTAL = 1 << _PRECISION  # sum of the frequencies of a table
_LOWEST = 1 << 16  # the smallest state between symbols, and the initial state of every stream
_TABLES = 64  # from four times as many channels on, channels of similar spread share a table
_AT_ONCE = 2**22  # symbols encoded together: each takes two dozen bytes meanwhile
_END = 3  # bytes of the final state of every stream
_STEPS = 4096  # symbols per stream, about: short codes share a stream, or their final states would dominate


@dataclass(frozen=True)
class Coded:
    """The symbols of n samples as bytes."""

    samples: int
    table_of: NDArray[np.uint8]
    """(channels,) → table of each channel."""
    lowest: NDArray[np.int16]
    """(tables,) → smallest symbol of each table."""
    sizes: NDArray[np.int16]
    """(tables,) → number of consecutive symbols in each table."""
    frequencies: NDArray[np.uint16]
    """The tables, concatenated; each sums to 4096."""
    lengths: NDArray[np.int64]
    """(streams,) → bytes of each stream."""
    data: NDArray[np.uint8]
    """The streams, concatenated."""

    @property
    def channels(self) -> int:
        """Symbols per sample."""
        return len(self.table_of)

    def tensors(self) -> dict[str, NDArray[np.uint8] | NDArray[np.int16] | NDArray[np.uint16]]:
        """Everything except the number of samples, as arrays for the memory file."""
        bits = integer_bits(int(self.lengths.max()))
        lengths = np.append(np.uint8(bits), pack_integers(self.lengths, bits)).astype(np.uint8)
        return {key: getattr(self, key) for key in _TYPES} | {"lengths": lengths}


_TYPES = {"table_of": np.uint8, "lowest": np.int16, "sizes": np.int16, "frequencies": np.uint16,
          "lengths": np.uint8, "data": np.uint8}  # fmt: skip


def from_tensors(arrays: Mapping[str, NDArray[np.generic]], samples: int, channels: int, name: str) -> Coded:
    """The inverse of `Coded.tensors`; refuses arrays that contradict each other or the number of samples."""
    found: dict[str, NDArray[Any]] = {key: arrays[key] for key in _TYPES if key in arrays}
    if {key: (array.dtype, array.ndim) for key, array in found.items()} != {
        key: (np.dtype(kind), 1) for key, kind in _TYPES.items()
    }:
        raise _damaged(name, "tables are missing")
    table_of, packed, available = found["table_of"], found["lengths"], len(found["data"])
    lowest, sizes = found["lowest"].astype(np.int64), found["sizes"].astype(np.int64)
    streams = -(-samples // _samples_per_stream(channels))
    bits = int(packed[0]) if len(packed) else 64
    # No stream is shorter than its final state, so lengths have at least two bits. This comes first: lengths
    # of no bits would match any number of samples.
    if not _END.bit_length() <= bits <= 48 or len(packed) != 1 + -(-streams * bits // 8):
        raise _damaged(name, "lengths are missing")
    lengths = unpack_integers(packed[1:], bits, streams)
    if not (
        len(table_of) == channels and 1 <= len(sizes) == len(lowest) <= 256 and table_of.max() < len(sizes)
    ):
        raise _damaged(name, "channels have no table")
    if sizes.min() < 1 or sizes.sum() != len(found["frequencies"]):
        raise _damaged(name, "tables have the wrong size")
    # Each length first: the sum of absurd lengths may overflow to the right value.
    if not _END <= lengths.min() <= lengths.max() <= available or lengths.sum() != available:
        raise _damaged(name, "streams have the wrong size")
    if np.any(np.add.reduceat(found["frequencies"].astype(np.int64), np.cumsum(sizes) - sizes) != _TOTAL):
        raise _damaged(name, "tables do not add up")
    if lowest.min() < -LARGEST or (lowest + sizes).max() > LARGEST + 1:
        raise _damaged(name, "symbols are out of range")
    return Coded(samples, **(found | {"lengths": lengths}))


def encode(symbols: Symbols, report: Callable[[int], None] | None = None) -> Coded:
    """Code symbols (n, channels), n ≥ 1, with tables of the frequencies found in them.

    report: called with the number of rows whenever some have been coded.
    """
    counted = _count(symbols)
    tables = _Tables(counted)
    samples, channels = symbols.shape
    together = _samples_per_stream(channels)
    block = max(_AT_ONCE // (together * channels), 1) * together
    # The last stream is padded with each channel's cheapest symbol.
    padding = np.repeat(tables.cheapest[counted.table_of][None], -samples % together, axis=0)
    parts = []
    for start in range(0, samples, block):
        rows = symbols[start : start + block]
        filled = np.concatenate([rows, padding]) if start + block >= samples else rows
        parts.append(_streams(filled.reshape(-1, together * channels), counted, tables))
        if report is not None:
            report(len(rows))
    lengths, data = zip(*parts, strict=True)
    return replace(counted, lengths=np.concatenate(lengths), data=np.concatenate(data))


def _streams(lanes: Symbols, counted: Coded, tables: _Tables) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Code symbols (streams, steps): the bytes of each stream, and all streams."""
    streams, steps = lanes.shape
    together = steps // counted.channels
    positions = lanes.astype(np.int64) + tables.offset[np.tile(counted.table_of, together)]
    live = np.flatnonzero(np.tile(counted.sizes[counted.table_of] > 1, together))
    # The small state costs up to log2(17/16) = 0.0875 bits per symbol above the ideal.
    room = int(np.ceil((tables.cost()[positions].sum(axis=1).max() + 0.09 * len(live)) / 8)) + 16
    buffer = np.empty((streams, room), dtype=np.uint8)
    at = np.full(streams, room, dtype=np.int64)
    state = np.full(streams, _LOWEST, dtype=np.int64)

    def emit(where: NDArray[np.intp]) -> None:
        at[where] -= 1
        buffer[where, at[where]] = state[where] & 0xFF
        state[where] >>= 8

    for step in live[::-1]:
        here = positions[:, step]
        frequency, start = tables.frequency[here], tables.start[here]
        for _ in range(2):
            emit(np.flatnonzero(state >= frequency << _PRECISION))
        state[:] = (state // frequency << _PRECISION) + state % frequency + start
    for _ in range(_END):
        emit(np.arange(streams))
    used = np.arange(room) >= at[:, None]
    return room - at, buffer[used]


def mean_bytes(symbols: Symbols) -> float:
    """Expected bytes per row, without coding."""
    counted = _count(symbols)
    tables = _Tables(counted)
    positions = symbols.astype(np.int64) + tables.offset[counted.table_of]
    ends = 2.5 / _samples_per_stream(symbols.shape[1])
    return float(tables.cost()[positions].sum()) / len(symbols) / 8 + ends


def decode(coded: Coded, rows: NDArray[np.integer], name: str) -> Symbols:
    """The symbols of some samples, (m,) → (m, channels); `name` is for the message if they are damaged."""
    together = _samples_per_stream(coded.channels)
    wanted, which = np.unique(np.asarray(rows) // together, return_inverse=True)
    tables = _Tables(coded)
    ends = np.cumsum(coded.lengths)[wanted]
    at = ends - coded.lengths[wanted]
    last = len(coded.data) - 1
    state = np.zeros(len(wanted), dtype=np.int64)

    def take(where: NDArray[np.intp]) -> None:
        # Damaged streams may read past the end; they are detected below.
        state[where] = state[where] << 8 | coded.data[np.minimum(at[where], last)]
        at[where] += 1

    for _ in range(_END):
        take(np.arange(len(wanted)))
    lanes = np.empty((together * coded.channels, len(wanted)), dtype=np.int16)
    table_of = np.tile(coded.table_of, together)
    # (tables, 4096): the symbol's position for each value of the state's low bits.
    lookup = np.repeat(np.arange(len(tables.frequency)), tables.frequency).reshape(-1, _TOTAL)
    alone = coded.sizes[table_of] == 1
    lanes[alone] = coded.lowest[table_of[alone], None]
    for step in np.flatnonzero(~alone):
        table = table_of[step]
        slot = state & (_TOTAL - 1)
        here = lookup[table, slot]
        lanes[step] = here - tables.offset[table]
        state[:] = tables.frequency[here] * (state >> _PRECISION) + slot - tables.start[here]
        for _ in range(2):
            low = np.flatnonzero(state < _LOWEST)
            if not len(low):
                break
            take(low)
    if np.any(state != _LOWEST) or np.any(at != ends):
        raise _damaged(name, "codes do not decode")
    samples: Symbols = lanes.T.reshape(-1, coded.channels)[which * together + np.asarray(rows) % together]
    return samples


class _Tables:
    """Frequencies and derived values, by position in the concatenated tables."""

    def __init__(self, coded: Coded) -> None:
        wide = coded.sizes.astype(np.int64)
        first = np.cumsum(wide) - wide
        self.offset = first - coded.lowest
        """Position of a symbol = symbol + offset of its table."""
        self.frequency = coded.frequencies.astype(np.int64)
        sums = np.cumsum(self.frequency)
        self.start = sums - self.frequency - np.repeat(np.arange(len(wide)) * _TOTAL, wide)
        most_frequent = [table.argmax() for table in np.split(self.frequency, first[1:])]
        self.cheapest = (coded.lowest + most_frequent).astype(np.int16)

    def cost(self) -> NDArray[np.float64]:
        """Bits of each symbol."""
        return _PRECISION - np.log2(np.maximum(self.frequency, 1))


def _samples_per_stream(channels: int) -> int:
    return max(min(_STEPS // channels, 16), 1)


def _count(symbols: Symbols) -> Coded:
    """The tables for some symbols, without streams."""
    samples, channels = symbols.shape
    rows = max(_AT_ONCE // channels, 1)
    if channels <= 4 * _TABLES - 1:
        table_of = np.arange(channels)
    else:
        # Channels of similar spread share a table; constant channels share one that costs nothing.
        blocks = (symbols[start : start + rows] for start in range(0, samples, rows))
        sums = sum(np.abs(some).sum(axis=0, dtype=np.int64) for some in blocks)
        spread = np.log(sums / samples + 1e-6)
        edges = np.linspace(spread.min(), spread.max(), _TABLES)
        _, table_of = np.unique(np.digitize(spread, edges), return_inverse=True)
    lowest, sizes, frequencies = [], [], []
    lows, highs = symbols.min(axis=0), symbols.max(axis=0)
    for table in range(int(table_of.max()) + 1):
        mine = table_of == table
        low, high = int(lows[mine].min()), int(highs[mine].max())
        counts = np.zeros(high - low + 1, np.int64)
        for start in range(0, samples, rows):
            some = symbols[start : start + rows, mine].ravel().astype(np.int64) - low
            counts += np.bincount(some, minlength=len(counts))
        lowest.append(low)
        sizes.append(len(counts))
        frequencies.append(_scaled(counts))
    return Coded(
        samples, table_of.astype(np.uint8), np.array(lowest, np.int16), np.array(sizes, np.int16),
        np.concatenate(frequencies).astype(np.uint16), np.empty(0, np.int64), np.empty(0, np.uint8),
    )  # fmt: skip


def _scaled(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts scaled to frequencies that sum to 4096, at least 1 for every symbol that occurs."""
    frequencies: NDArray[np.int64] = np.round(counts / counts.sum() * _TOTAL).astype(np.int64)
    frequencies[(counts > 0) & (frequencies == 0)] = 1
    while excess := int(frequencies.sum()) - _TOTAL:
        largest = int(frequencies.argmax())
        frequencies[largest] -= min(excess, int(frequencies[largest]) - 1) if excess > 0 else excess
    return frequencies


def _damaged(name: str, problem: str) -> Damaged:
    return Damaged(f"{name}: {problem}; `logcl verify` says what is intact")
