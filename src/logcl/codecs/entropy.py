"""Integers to bytes and back, at their entropy: what quantised codes are kept as.

symbols (n, channels) ── tables (how often each value occurs in a channel) ── streams of bytes

The coder is a range variant of asymmetric numeral systems (Duda 2013, "rANS"): one 24-bit state a stream,
bytes in and out, frequencies that add up to 4096. All streams of a level are coded side by side, one
symbol of each at a time, so Python runs once a channel and never once a sample. Only integers decide what
is decoded: the same file gives the same symbols on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logcl.codecs.bits import integer_bits, pack_integers, unpack_integers
from logcl.core.errors import Damaged

LARGEST = 1023
"""Symbols lie between -LARGEST and LARGEST."""

Symbols = NDArray[np.int16]
"""One row a sample: (n, channels)."""

_PRECISION = 12
_TOTAL = 1 << _PRECISION  # what the frequencies of a table add up to
_LOWEST = 1 << 16  # a state is at least this between symbols; it is the state every stream begins with
_TABLES = 64  # more channels than four times this share tables with channels of the same spread
_END = 3  # bytes of the state that every stream ends with
_STEPS = 4096  # symbols coded in one stream, about: short codes share one, or their ends would cost too much


@dataclass(frozen=True)
class Coded:
    """The symbols of n samples as bytes."""

    samples: int
    table_of: NDArray[np.uint8]
    """(channels,) → which table a channel is coded with."""
    lowest: NDArray[np.int16]
    """(tables,) → the smallest symbol of a table."""
    sizes: NDArray[np.int16]
    """(tables,) → how many symbols it has, from the smallest on."""
    frequencies: NDArray[np.uint16]
    """The tables one after the other; each adds up to 4096."""
    lengths: NDArray[np.int64]
    """(streams,) → bytes of each stream."""
    data: NDArray[np.uint8]
    """The streams one after the other."""

    @property
    def channels(self) -> int:
        """Symbols of one sample."""
        return len(self.table_of)

    def tensors(self) -> dict[str, NDArray[np.uint8] | NDArray[np.int16] | NDArray[np.uint16]]:
        """Everything but the number of samples, as arrays for the memory file."""
        bits = integer_bits(int(self.lengths.max()))
        lengths = np.append(np.uint8(bits), pack_integers(self.lengths, bits)).astype(np.uint8)
        return {
            "table_of": self.table_of, "lowest": self.lowest, "sizes": self.sizes,
            "frequencies": self.frequencies, "lengths": lengths, "data": self.data,
        }  # fmt: skip


def from_tensors(arrays: Mapping[str, NDArray[np.generic]], samples: int, channels: int, name: str) -> Coded:
    """What `Coded.tensors` gave, refused where the arrays contradict each other or the number of samples."""
    wanted = {"table_of": np.uint8, "lowest": np.int16, "sizes": np.int16, "frequencies": np.uint16,
              "lengths": np.uint8, "data": np.uint8}  # fmt: skip
    found = {key: arrays[key] for key in wanted if key in arrays}
    if found.keys() != wanted.keys() or any(
        found[k].dtype != t or found[k].ndim != 1 for k, t in wanted.items()
    ):
        raise _damaged(name, "tables are missing")
    table_of, lowest = found["table_of"], found["lowest"].astype(np.int64)
    sizes = found["sizes"].astype(np.int64)
    frequencies, packed = found["frequencies"], found["lengths"]
    streams = -(-samples // _samples_a_stream(channels))
    bits = int(packed[0]) if len(packed) else 64
    # No stream is shorter than its end. Asked first: lengths of no bits would fit any number of samples.
    if not _END.bit_length() <= bits <= 48 or len(packed) != 1 + -(-streams * bits // 8):
        raise _damaged(name, "lengths are missing")
    lengths = unpack_integers(packed[1:].astype(np.uint8), bits, streams)
    if (
        len(table_of) != channels
        or not 1 <= len(sizes) <= 256
        or len(lowest) != len(sizes)
        or table_of.max() >= len(sizes)
    ):
        raise _damaged(name, "channels have no table")
    if sizes.min() < 1 or sizes.sum() != len(frequencies):
        raise _damaged(name, "tables have another size")
    # Each by itself first: a sum of absurd lengths may come round to the right one.
    available = len(found["data"])
    if not _END <= lengths.min() <= lengths.max() <= available or lengths.sum() != available:
        raise _damaged(name, "streams have another size")
    if np.any(np.add.reduceat(frequencies.astype(np.int64), np.cumsum(sizes) - sizes) != _TOTAL):
        raise _damaged(name, "tables do not add up")
    if lowest.min() < -LARGEST or (lowest + sizes).max() > LARGEST + 1:
        raise _damaged(name, "symbols are out of range")
    return Coded(
        samples, table_of.astype(np.uint8), lowest.astype(np.int16), sizes.astype(np.int16),
        frequencies.astype(np.uint16), lengths, found["data"].astype(np.uint8),
    )  # fmt: skip


def encode(symbols: Symbols) -> Coded:
    """Count, then code: symbols (n, channels), n ≥ 1."""
    table_of, lowest, sizes, frequencies = _count(symbols)
    tables = _Tables(lowest, sizes, frequencies)
    samples, channels = symbols.shape
    together = _samples_a_stream(channels)
    streams = -(-samples // together)
    missing = streams * together - samples
    # A last, incomplete stream is filled up with each channel's cheapest symbol.
    filled = np.concatenate([symbols, np.repeat(tables.cheapest[table_of][None], missing, axis=0)])
    lanes = filled.reshape(streams, together * channels)

    positions = lanes.astype(np.int64) + tables.offset[np.tile(table_of, together)]
    live = np.flatnonzero(np.tile(sizes[table_of] > 1, together))
    # States of few bits cost up to log2(17/16) = 0.0875 bits a symbol more than its frequency says.
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
    return Coded(samples, table_of, lowest, sizes, frequencies, room - at, buffer[used])


def mean_bytes(symbols: Symbols) -> float:
    """Bytes a row would take, without coding it."""
    table_of, lowest, sizes, frequencies = _count(symbols)
    tables = _Tables(lowest, sizes, frequencies)
    positions = symbols.astype(np.int64) + tables.offset[table_of]
    ends = 2.5 / _samples_a_stream(symbols.shape[1])
    return float(tables.cost()[positions].sum()) / len(symbols) / 8 + ends


def decode(coded: Coded, rows: NDArray[np.integer], name: str) -> Symbols:
    """The symbols of some samples, (m,) → (m, channels); `name` is what a message calls damaged data."""
    together = _samples_a_stream(coded.channels)
    wanted, which = np.unique(np.asarray(rows) // together, return_inverse=True)
    tables = _Tables(coded.lowest, coded.sizes, coded.frequencies)
    ends = np.cumsum(coded.lengths)[wanted]
    at = ends - coded.lengths[wanted]
    last = len(coded.data) - 1
    state = np.zeros(len(wanted), dtype=np.int64)

    def take(where: NDArray[np.intp]) -> None:
        # Damaged streams may ask for bytes past the end: they are found out below.
        state[where] = state[where] << 8 | coded.data[np.minimum(at[where], last)]
        at[where] += 1

    for _ in range(_END):
        take(np.arange(len(wanted)))
    lanes = np.empty((together * coded.channels, len(wanted)), dtype=np.int16)
    table_of = np.tile(coded.table_of, together)
    lookup = tables.lookup()
    alone = coded.sizes[table_of] == 1
    lanes[alone] = coded.lowest[table_of[alone], None]
    for step in np.flatnonzero(~alone):
        table = table_of[step]
        slot = state & (_TOTAL - 1)
        here = lookup[table, slot]
        lanes[step] = here - tables.offset[table]
        state[:] = tables.frequency[here] * (state >> _PRECISION) + slot - tables.start[here]
        for _ in range(2):
            take(np.flatnonzero(state < _LOWEST))
    if np.any(state != _LOWEST) or np.any(at != ends):
        raise _damaged(name, "codes do not decode")
    samples: Symbols = lanes.T.reshape(-1, coded.channels)[which * together + np.asarray(rows) % together]
    return samples


class _Tables:
    """Frequencies with what coding needs of them, by position in the concatenated tables."""

    def __init__(
        self, lowest: NDArray[np.int16], sizes: NDArray[np.int16], frequencies: NDArray[np.uint16]
    ) -> None:
        wide = sizes.astype(np.int64)
        first = np.cumsum(wide) - wide
        self.offset = first - lowest
        """Position of a symbol = symbol + offset of its table."""
        self.frequency = frequencies.astype(np.int64)
        sums = np.cumsum(self.frequency)
        self.start = sums - self.frequency - np.repeat(np.arange(len(wide)) * _TOTAL, wide)
        self.cheapest = np.array(
            [low + np.argmax(frequencies[f : f + s]) for low, f, s in zip(lowest, first, wide, strict=True)],
            dtype=np.int16,
        )

    def cost(self) -> NDArray[np.float64]:
        """Bits of each symbol."""
        return _PRECISION - np.log2(np.maximum(self.frequency, 1))

    def lookup(self) -> NDArray[np.int64]:
        """(tables, 4096): the symbol's position for each value of a state's last bits."""
        return np.repeat(np.arange(len(self.frequency)), self.frequency).reshape(-1, _TOTAL)


def _samples_a_stream(channels: int) -> int:
    return max(min(_STEPS // channels, 16), 1)


def _count(
    symbols: Symbols,
) -> tuple[NDArray[np.uint8], NDArray[np.int16], NDArray[np.int16], NDArray[np.uint16]]:
    """Which table each channel gets, and the tables: lowest symbol, size, frequencies."""
    channels = symbols.shape[1]
    if channels <= 4 * _TABLES - 1:
        table_of = np.arange(channels)
    else:
        # Channels of about the same spread share a table; those that never change share one that is free.
        spread = np.log(np.abs(symbols).mean(axis=0, dtype=np.float64) + 1e-6)
        edges = np.linspace(spread.min(), spread.max(), _TABLES)
        _, table_of = np.unique(np.digitize(spread, edges), return_inverse=True)
    lowest, sizes, frequencies = [], [], []
    for table in range(int(table_of.max()) + 1):
        mine = symbols[:, table_of == table]
        low = int(mine.min())
        counts = np.bincount((mine.ravel() - low).astype(np.int64))
        lowest.append(low)
        sizes.append(len(counts))
        frequencies.append(_scaled(counts))
    return (
        table_of.astype(np.uint8), np.array(lowest, np.int16), np.array(sizes, np.int16),
        np.concatenate(frequencies).astype(np.uint16),
    )  # fmt: skip


def _scaled(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts to frequencies that add up to 4096, none that occurs being zero."""
    frequencies: NDArray[np.int64] = np.round(counts / counts.sum() * _TOTAL).astype(np.int64)
    frequencies[(counts > 0) & (frequencies == 0)] = 1
    while excess := int(frequencies.sum()) - _TOTAL:
        largest = int(frequencies.argmax())
        frequencies[largest] -= min(excess, int(frequencies[largest]) - 1) if excess > 0 else excess
    return frequencies


def _damaged(name: str, problem: str) -> Damaged:
    return Damaged(f"{name}: {problem}; `logcl verify` says what is intact")
