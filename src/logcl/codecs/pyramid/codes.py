"""The codes of a level of pyramids: streams, each of which holds a few images with one step."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.codecs.base import Rows
from logcl.codecs.coding import ans
from logcl.codecs.pyramid import context as pyramid_context
from logcl.codecs.pyramid import streams as pyramid_streams
from logcl.codecs.pyramid.context import Format
from logcl.core.settings import ImageShape


@dataclass(frozen=True)
class PyramidCodes:
    """Streams, each of which holds a few images."""

    streams: ans.Streams
    steps: NDArray[np.uint8]
    """Number of each stream's step."""
    counts: NDArray[np.uint8]
    """Images in each stream."""
    format: Format
    name: str = "codes"
    """What an error message calls them."""

    def __len__(self) -> int:
        return int(self.counts.sum(dtype=np.int64))

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.format.shape

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def holding(self, rows: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Streams that hold these images, and where the images are among all images of those streams."""
        rows = np.asarray(rows)
        streams = np.searchsorted(self._ends, rows, side="right")
        wanted, which = np.unique(streams, return_inverse=True)
        before = np.cumsum(self.counts[wanted], dtype=np.int64) - self.counts[wanted]
        first = self._ends[streams] - self.counts[streams]
        return wanted, before[which] + rows - first

    def part(self, streams: NDArray[np.intp] | slice) -> PyramidCodes:
        """Some of the streams."""
        some = np.arange(len(self.counts))[streams]
        return replace(
            self, streams=self.streams.select(some), steps=self.steps[some], counts=self.counts[some]
        )

    def _batches(self) -> Iterable[tuple[PyramidCodes, NDArray[np.intp], NDArray[np.intp]]]:
        """All streams in parts that can be decoded at once: which streams, and which images they hold.

        Every stream of a part takes as much room and time as the fullest one, so the fullest come first.
        """
        fullest_first, start = np.argsort(-self.counts.astype(np.int64), kind="stable"), 0
        room = pyramid_context.at_once(self.shape) * pyramid_context.together(self.shape)
        while start < len(self.counts):
            stop = start + max(room // int(self.counts[fullest_first[start]]), 1)
            streams = fullest_first[start:stop]
            counts = self.counts[streams].astype(np.int64)
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            yield self.part(streams), streams, np.repeat(self._ends[streams] - counts, counts) + within
            start = stop

    def decode(self, restored: bool = True) -> Tensor:
        """All images, uint8 (n, C, H, W)."""
        found = torch.empty((len(self), *self.shape), dtype=torch.uint8)
        for part, _, images in self._batches():
            found[torch.from_numpy(images)] = pyramid_streams.decode(
                part.streams,
                part.steps.astype(np.int64),
                part.counts.astype(np.int64),
                self.format,
                self.name,
                restored,
            )
        return found

    def integers(self, rows: NDArray[np.intp]) -> pyramid_streams.Integral:
        """Those of some images."""
        parts, order = [], []
        for part, _, images in self._batches():
            counts, steps = part.counts.astype(np.int64), part.steps.astype(np.int64)
            found = pyramid_streams.symbols(part.streams, steps, counts, self.format, self.name)
            stream = np.repeat(np.arange(len(counts)), counts)
            slot = np.arange(len(images)) - np.repeat(np.cumsum(counts) - counts, counts)
            asked = np.isin(images, rows)
            parts.append(found.take((slot * len(counts) + stream)[asked]))
            order.append(images[asked])
        whole = pyramid_streams.Integral(
            np.concatenate([part.means for part in parts], axis=-1),
            [np.concatenate(stage, axis=-1) for stage in zip(*(part.symbols for part in parts), strict=True)],
        )
        ascending = np.argsort(np.concatenate(order))
        return whole.take(ascending[np.searchsorted(np.concatenate(order), rows, sorter=ascending)])

    def recoded(self, steps: NDArray[np.int64], networks: int, worth: float = 0) -> PyramidCodes:
        """The same images with other steps or networks; with equal steps and `worth` 0, losslessly."""
        format_, done, order = Format(self.shape, networks), [], []
        for part, streams, _ in self._batches():
            done.append(part._recoded(steps[streams], format_, worth))
            order.append(streams)
        return joined(done).part(np.argsort(np.concatenate(order)))

    def _recoded(self, steps: NDArray[np.int64], format_: Format, worth: float) -> PyramidCodes:
        old, counts = self.steps.astype(np.int64), self.counts.astype(np.int64)
        found = pyramid_streams.symbols(self.streams, old, counts, self.format, self.name)
        streams = pyramid_streams.recode(found, counts, old, steps, format_, worth)
        return replace(self, streams=streams, steps=steps.astype(np.uint8), format=format_)

    def select(self, rows: Rows) -> PyramidCodes:
        """The codes of some images, losslessly, in streams of their own."""
        rows = np.asarray(rows)
        group = pyramid_context.together(self.shape)
        streams = np.searchsorted(self._ends, rows, side="right")
        sizes, owners = _streams_for(self.steps[streams], group)
        ends, many = np.cumsum(sizes), pyramid_context.at_once(self.shape)
        parts = []
        for start in range(0, len(sizes), many):
            some = slice(start, start + many)
            first = ends[start] - sizes[start]
            parts.append(self._selected(rows[first : ends[some][-1]], sizes[some], owners[some]))
        return joined(parts)

    def _selected(
        self, rows: NDArray[np.integer[Any]], sizes: NDArray[np.int64], owners: NDArray[np.uint8]
    ) -> PyramidCodes:
        """The codes of some images, in streams of these sizes and steps."""
        wanted, places = self.holding(rows)
        # Slot by slot in the new streams; empty slots repeat an image, and are not coded.
        room, firsts = int(sizes.max()), np.cumsum(sizes) - sizes
        slots = np.minimum(firsts + np.arange(room)[:, None], firsts + sizes - 1).ravel()
        steps = owners.astype(np.int64)
        given = self.part(wanted).integers(places).take(slots)
        streams = pyramid_streams.recode(given, sizes, steps, steps, self.format)
        return replace(self, streams=streams, steps=owners, counts=sizes.astype(np.uint8))

    def tensors(self) -> dict[str, Tensor]:
        """Lengths and words of the streams; their steps and counts, deflated."""
        arrays = self.streams.arrays()
        arrays["streams"] = np.frombuffer(
            zlib.compress(self.steps.tobytes() + self.counts.tobytes(), 9), np.uint8
        ).copy()
        return {key: torch.from_numpy(array) for key, array in arrays.items()}

    @staticmethod
    def restore(tensors: Mapping[str, Tensor], samples: int, format_: Format, name: str) -> PyramidCodes:
        """What `tensors` gave, checked against the number of images."""
        arrays = {key: value.numpy() for key, value in tensors.items() if value.dtype == torch.uint8}
        about = arrays.get("streams", np.empty(0, np.uint8))
        inflate = zlib.decompressobj()
        try:
            content = inflate.decompress(about.tobytes(), 2 * samples + 1)
        except zlib.error as error:
            raise ans.damaged(name, "streams are not described") from error
        whole = inflate.eof and not inflate.unused_data and about.ndim == 1
        if not whole or not content or len(content) % 2:
            raise ans.damaged(name, "streams are not described")
        steps, counts = np.frombuffer(content, np.uint8).copy().reshape(2, -1)
        group = pyramid_context.together(format_.shape)
        if int(counts.sum(dtype=np.int64)) != samples or not 1 <= counts.min() <= counts.max() <= group:
            raise ans.damaged(name, "streams hold another number of images")
        return PyramidCodes(ans.restore(arrays, len(counts), name), steps, counts, format_, name)


def joined(parts: Sequence[PyramidCodes]) -> PyramidCodes:
    """All images, in order; their streams stay as they are."""
    return replace(
        parts[-1],
        streams=ans.join([part.streams for part in parts]),
        steps=np.concatenate([part.steps for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


def _streams_for(steps: NDArray[np.uint8], group: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Sizes and steps of streams for consecutive images with these steps."""
    ends = np.append(np.flatnonzero(np.diff(steps)) + 1, len(steps))
    sizes: list[int] = []
    owners: list[int] = []
    start = 0
    for end in ends.tolist():
        run = end - start
        sizes += [group] * (run // group) + ([run % group] if run % group else [])
        owners += [int(steps[start])] * (-(-run // group))
        start = end
    return np.array(sizes, np.int64), np.array(owners, np.uint8)
