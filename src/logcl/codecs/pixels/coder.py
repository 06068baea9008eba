"""Entropy coding in context: symbol by symbol, each with the frequencies that a network finds probable.

    decoded symbols ── context_model.py ── frequencies ── ans.py ── next symbol

Positions that do not depend on each other form a wave and go through the network together, for many images.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logcl.codecs.coding import ans
from logcl.codecs.pixels.model import ContextModel, Floats, Lattice, Symbols
from logcl.core.threads import one_thread_per_product

_AT_ONCE = 2**21  # symbols of the images that are coded together
_WIDEST = 2**21  # frequencies of a wave in all of them
_MOST_TOGETHER = 16  # images per stream at most: decoding one of them decodes all
_MOST_LIVE = 0.6  # share of contexts that are not zero up to which they are picked out
_ENOUGH = 2**14  # symbols per stream, about: short ones would consist of their states


class ContextCoder:
    """A model, the lattice it was made for, and how symbols enter it."""

    def __init__(self, model: ContextModel, lattice: Lattice, inputs: Floats) -> None:
        """inputs: what the network sees of each symbol, (symbols,) integers from 0 to 63."""
        self.model, self.lattice, self.inputs = model, lattice, inputs
        self.together = min(max(_ENOUGH // len(lattice), 1), _MOST_TOGETHER)
        """Images per stream."""
        self._place_biases = model.place_biases(lattice.places)

    def encode(
        self,
        values: Callable[[slice], Floats],
        count: int,
        points: Floats,
        rate: float = 0.0,
        made: Callable[[int], None] | None = None,
    ) -> ans.Streams:
        """Code the symbols near values: see `choose`. `values` gives those of some images."""
        parts = []
        for rows in self.batches(count):
            parts.append(self.choose(values(rows), points, rate)[0])
            if made is not None:
                made(rows.stop - rows.start)
        return ans.join(parts)

    def batches(self, count: int) -> Iterator[slice]:
        """Images that are coded together."""
        for start in range(0, count, self._at_once):
            yield slice(start, min(start + self._at_once, count))

    def encode_symbols(self, symbols: Callable[[slice], Symbols], count: int) -> ans.Streams:
        """Code symbols as they are; `symbols` gives those of some images."""
        numbers = np.arange(self.model.symbols, dtype=np.float32)
        return self.encode(lambda rows: symbols(rows).astype(np.float32), count, numbers)

    def choose(self, values: Floats, points: Floats, rate: float = 0.0) -> tuple[ans.Streams, Symbols]:
        """Symbols near values that take few bits, coded, and which they are (n, positions).

        values: real numbers (n, positions); points: the real number of each symbol, (symbols,).
        rate: the squared error that one bit is worth. A symbol is chosen when its context is known; what it
        means for later symbols is not looked at.
        """
        with one_thread_per_product():
            return self._encode(values, points, rate)

    def _encode(self, values: Floats, points: Floats, rate: float) -> tuple[ans.Streams, Symbols]:
        together, (count, positions) = self.together, values.shape
        streams = -(-count // together)
        columns = ans.columns(count, together)
        wanted = np.zeros((positions, streams * together), np.float32)
        wanted[:, columns] = values.T
        absent = np.ones(streams * together, np.bool_)
        absent[columns] = False
        starts, frequencies, chosen = (np.empty(wanted.shape, np.uint16) for _ in range(3))

        def choose(wave: NDArray[np.intp], cumulative: NDArray[np.int32]) -> NDArray[np.integer[Any]]:
            costs = np.square(wanted[wave][:, None] - points[:, None])
            sizes = np.diff(cumulative, axis=1)
            if rate:
                costs += np.float32(rate) * ans.COST[sizes]
            symbols: NDArray[np.intp] = costs.argmin(axis=1)
            starts[wave] = np.take_along_axis(cumulative, symbols[:, None], 1)[:, 0]
            frequencies[wave] = np.take_along_axis(sizes, symbols[:, None], 1)[:, 0]
            chosen[wave] = symbols
            return symbols

        self._walk(streams * together, choose)
        starts[:, absent], frequencies[:, absent] = 0, ans.TOTAL
        order = np.concatenate(self.lattice.waves)
        coded = ans.encode(starts[order].reshape(-1, streams), frequencies[order].reshape(-1, streams))
        return coded, chosen[:, columns].T.astype(np.uint8)

    def decode(self, coded: ans.Streams, rows: NDArray[np.integer[Any]], count: int, name: str) -> Symbols:
        """Symbols (m, positions) of some of `count` images."""
        together = self.together
        wanted, which = np.unique(np.asarray(rows) // together, return_inverse=True)
        at_once = self._at_once // together
        found = np.empty((len(wanted) * together, len(self.lattice)), np.uint8)
        with one_thread_per_product():
            for start in range(0, len(wanted), at_once):
                some = wanted[start : start + at_once]
                # Only the very last stream may hold fewer images than the others.
                held = (len(some) - 1) * together + min(together, count - int(some[-1]) * together)
                first = start * together
                found[first : first + held] = self._decode(coded.select(some), held, name)
        images: Symbols = found[which * together + np.asarray(rows) % together]
        return images

    def _decode(self, coded: ans.Streams, count: int, name: str) -> Symbols:
        together, streams = self.together, len(coded)
        columns = ans.columns(count, together)
        absent = np.setdiff1d(np.arange(streams * together), columns)
        decoder = ans.Decoder(coded)
        found = np.empty((len(self.lattice), streams * together), np.uint8)

        def choose(wave: NDArray[np.intp], cumulative: NDArray[np.int32]) -> NDArray[np.integer[Any]]:
            cumulative[:, 1:, absent] = ans.TOTAL
            for place, position in enumerate(wave):
                for first in range(0, streams * together, streams):
                    some = slice(first, first + streams)
                    found[position, some] = decoder.take(cumulative[place, :, some])
            return found[wave]

        self._walk(streams * together, choose)
        if not decoder.finished:
            raise ans.damaged(name, "codes do not decode")
        images: Symbols = found[:, columns].T
        return images

    def _walk(
        self,
        count: int,
        choose: Callable[[NDArray[np.intp], NDArray[np.int32]], NDArray[np.integer[Any]]],
    ) -> None:
        """Wave by wave: the frequencies of what comes next, and then what `choose` finds it to be."""
        seen = np.zeros((len(self.lattice) + 1, count), np.float32)
        for wave in self.lattice.waves:
            cumulative = self._frequencies(wave, seen[self.lattice.neighbours[wave]])
            seen[wave] = self.inputs[choose(wave, cumulative)]

    def _frequencies(self, wave: NDArray[np.intp], context: Floats) -> NDArray[np.int32]:
        """Cumulative frequencies (w, symbols + 1, n) of what follows contexts (w, context, n).

        Where all neighbours are zero, they depend on the position alone.
        """
        biases, live = self._place_biases[wave], context.any(axis=1)
        if live.mean() > _MOST_LIVE:
            return self.model.cumulative(self.model.first_layer(context) + biases[:, :, None])
        found = np.repeat(self._blank[wave][:, :, None], context.shape[2], axis=2)
        place, column = np.nonzero(live)
        if len(place):
            first = self.model.first_layer(context.swapaxes(0, 1)[:, live]) + biases[place].T
            found[place, :, column] = self.model.cumulative(first[None])[0].T
        return found

    @functools.cached_property
    def _blank(self) -> NDArray[np.int32]:
        """Cumulative frequencies of each position where all neighbours are zero, (positions, symbols + 1)."""
        result: NDArray[np.int32] = self.model.cumulative(self._place_biases.T[None].copy())[0].T
        return result

    @property
    def _at_once(self) -> int:
        """Images that are coded together: whole streams."""
        wave = max(map(len, self.lattice.waves))
        images = min(_AT_ONCE // len(self.lattice), _WIDEST // (wave * self.model.symbols))
        return max(images // self.together, 1) * self.together
