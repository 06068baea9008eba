"""A pyramid of small cosine transforms, coded in context: for small images of anything but writing.

    image ── 4x4 transforms, means again ── / step ── integers ── pyramid_coder.py ── one stream for a few images

The networks that predict the integers come with this package; they were trained on photographs of clothes. So
nothing is trained, a memory holds no weights, and a sample's integers are kept when levels merge.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator
from torch import Tensor

from logcl.codecs import ans, pyramid_coder
from logcl.codecs.base import Codec, CodecSpec, FitInput, Fitted, RateSettings, Rows
from logcl.codecs.pyramid_coder import STEPS
from logcl.codecs.rate_control import TRIALS, Encoded, RateControl, Scale, runs
from logcl.core.errors import BadSettings, Damaged
from logcl.core.images import squared_errors
from logcl.core.settings import ImageShape
from logcl.nn.images import to_unit
from logcl.nn.training import Work

_LARGEST_IMAGE = 2**20  # pixels
_FAST_IMAGE = 48 * 48  # pixels up to which it competes by default: the time per image grows with them
_TRIED = 64  # images on which the first step is chosen
_SCALE = Scale(0, STEPS - 1, error_slope=-0.16, bytes_slope=0.1, usual=80, dear=0)


class PyramidSettings(RateSettings):
    """The rate is all there is to choose."""

    name: Literal["pyramid"] = "pyramid"
    """Which codec."""

    @classmethod
    def for_images(cls, image_shape: ImageShape) -> PyramidSettings:
        """30 dB."""
        del image_shape
        return cls(psnr=30)

    @classmethod
    def candidate(cls, image_shape: ImageShape, samples: int) -> PyramidSettings | None:
        """For small images."""
        del samples
        _, height, width = image_shape
        suits = _possible(image_shape) and 64 < height * width <= _FAST_IMAGE
        return cls.for_images(image_shape) if suits else None


class PyramidSpec(CodecSpec):
    """Which networks predict the integers; and of what images."""

    name: Literal["pyramid"] = "pyramid"
    image_shape: ImageShape
    networks: Literal[1]
    """Version of the networks in this package."""
    step: int = Field(ge=0, lt=STEPS)
    """Number of the step of the newest samples, see `pyramid_coder.step_of`."""

    @field_validator("image_shape")
    @classmethod
    def _size(cls, shape: ImageShape) -> ImageShape:
        if not _possible(shape):
            raise ValueError("this codec has no images of such a shape")
        return shape

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.image_shape


@dataclass(frozen=True)
class PyramidCodes:
    """Streams, each of which holds a few images."""

    streams: ans.Streams
    steps: NDArray[np.uint8]
    """Number of each stream's step."""
    counts: NDArray[np.uint8]
    """Images in each stream."""
    shape: ImageShape
    name: str = "codes"
    """What an error message calls them."""

    def __len__(self) -> int:
        return int(self.counts.sum(dtype=np.int64))

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

    def parts(self, images: int) -> Iterable[PyramidCodes]:
        """All streams, in parts of about this many images."""
        some = max(images // pyramid_coder.together(self.shape), 1)
        for start in range(0, len(self.counts), some):
            yield self.part(slice(start, start + some))

    def decode(self) -> Tensor:
        """All images, uint8 (n, C, H, W)."""
        return pyramid_coder.decode(
            self.streams, self.steps.astype(np.int64), self.counts.astype(np.int64), self.shape, self.name
        )

    def recoded(self, steps: NDArray[np.int64], worth: float = 0) -> PyramidCodes:
        """The same images with other steps."""
        old, counts = self.steps.astype(np.int64), self.counts.astype(np.int64)
        found = pyramid_coder.symbols(self.streams, old, counts, self.shape, self.name)
        streams = pyramid_coder.recode(found, counts, old, steps, self.shape, worth)
        return replace(self, streams=streams, steps=steps.astype(np.uint8))

    def select(self, rows: Rows) -> PyramidCodes:
        """The codes of some images, losslessly, in streams of their own."""
        wanted, places = self.holding(rows)
        held = self.part(wanted)
        old, counts = held.steps.astype(np.int64), held.counts.astype(np.int64)
        found = pyramid_coder.symbols(held.streams, old, counts, self.shape, self.name)
        stream = np.repeat(np.arange(len(counts)), counts)[places]
        slot = places - (np.cumsum(counts) - counts)[stream]
        columns = slot * len(counts) + stream  # where the images stand in `found`
        sizes, owners = _streams_for(self.steps[wanted][stream], pyramid_coder.together(self.shape))
        # Slot by slot in the new streams; empty slots repeat an image, and are not coded.
        group, firsts = pyramid_coder.together(self.shape), np.cumsum(sizes) - sizes
        slots = np.minimum(firsts + np.arange(group)[:, None], firsts + sizes - 1).ravel()
        given = pyramid_coder.Integral(
            found.means[:, columns[slots]], [part[..., columns[slots]] for part in found.symbols]
        )
        steps = owners.astype(np.int64)
        streams = pyramid_coder.recode(given, sizes, steps, steps, self.shape)
        return replace(self, streams=streams, steps=owners, counts=sizes.astype(np.uint8))

    def tensors(self) -> dict[str, Tensor]:
        """Lengths and words of the streams; their steps and counts, deflated."""
        arrays = self.streams.arrays()
        arrays["streams"] = np.frombuffer(
            zlib.compress(self.steps.tobytes() + self.counts.tobytes(), 9), np.uint8
        ).copy()
        return {key: torch.from_numpy(array) for key, array in arrays.items()}

    @staticmethod
    def restore(tensors: Mapping[str, Tensor], samples: int, shape: ImageShape, name: str) -> PyramidCodes:
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
        group = pyramid_coder.together(shape)
        if int(counts.sum(dtype=np.int64)) != samples or not 1 <= counts.min() <= counts.max() <= group:
            raise ans.damaged(name, "streams hold another number of images")
        return PyramidCodes(ans.restore(arrays, len(counts), name), steps, counts, shape, name)


class Pyramid(Codec):
    """A step; everything else is part of the package."""

    Settings = PyramidSettings
    Spec = PyramidSpec
    copies_codes = True
    warm_starts = True
    spec: PyramidSpec

    def __init__(self, spec: PyramidSpec) -> None:
        self.spec = spec

    @classmethod
    def fit(
        cls, samples: FitInput, settings: PyramidSettings, work: Work, starts: Sequence[Codec] = ()
    ) -> Fitted:
        """Encode new samples; those of merged levels keep their integers."""
        shape = samples.image_shape
        if not _possible(shape):
            raise BadSettings(
                f"the codec pyramid is for images of 1 or 3 channels and up to {_LARGEST_IMAGE:,} pixels, but "
                f"images are {'x'.join(map(str, shape))}; choose another one with --codec cosine"
            )
        merged = [(codec, codes) for codec, codes in samples.merged if _suits(codec, shape)]
        kept = len(merged) == len(samples.merged)
        images = samples.new if kept else samples.x
        alike = [codec for codec, _ in merged[::-1]] + [codec for codec in starts if _suits(codec, shape)]
        step = alike[0].spec.step if alike else None
        parts: list[PyramidCodes] = [codes for _, codes in merged] if kept else []
        order = np.arange(len(samples))
        left = cls.steps(settings, len(samples), warm=bool(alike))
        with work.progress.track(work.description, left) as advance:

            def made(count: int) -> None:
                nonlocal left
                advance(min(count, left))
                left -= min(count, left)

            if len(images):

                def encode(x: NDArray[np.uint8], quality: int) -> Encoded:
                    codes, errors = _encoded(x, quality)
                    made(len(x))
                    return Encoded(codes, codes.nbytes / len(x), float(errors.mean()))

                many = max(pyramid_coder.at_once(shape) * pyramid_coder.together(shape), 32)
                control = RateControl(encode, _SCALE, settings, many, _TRIED)
                first = len(samples) - len(images)
                for start, stop in runs(samples.groups, first):
                    blocks, step = control.encode(images[start - first : stop - first], step)
                    parts += [block.codes for block in blocks]
                    order[start:stop] = start + np.concatenate([block.rows for block in blocks])
            made(left)
        codec = cls(PyramidSpec(image_shape=shape, networks=1, step=step or 0))
        return Fitted(codec, joined(parts), order, kept and bool(samples.merged))

    def encode(self, x: NDArray[np.uint8]) -> PyramidCodes:
        """Codes with the step of the newest samples."""
        return _encoded(x, self.spec.step)[0]

    def decode(self, codes: PyramidCodes, rows: Rows) -> Tensor:
        """Images (m, C, H, W)."""
        wanted, places = codes.holding(rows)
        some = codes.part(wanted)
        if not len(wanted):
            return torch.empty((0, *self.spec.shape), dtype=torch.uint8)
        many = 4 * pyramid_coder.at_once(self.spec.shape) * pyramid_coder.together(self.spec.shape)
        return torch.cat([part.decode() for part in some.parts(many)])[torch.from_numpy(places)]

    def coarsen(self, codes: PyramidCodes, factor: int = 2) -> PyramidCodes:
        """The same integers in larger steps."""
        steps = codes.steps.astype(np.int64)
        coarse = np.maximum(steps - round(pyramid_coder.PER_OCTAVE * math.log2(factor)), 0)
        if np.array_equal(coarse, steps):
            return codes
        many = pyramid_coder.at_once(self.spec.shape) * pyramid_coder.together(self.spec.shape)
        done, parts = 0, []
        for part in codes.parts(many):
            parts.append(part.recoded(coarse[done : done + len(part.counts)], pyramid_coder.WORTH))
            done += len(part.counts)
        return joined(parts)

    @classmethod
    def restore(cls, spec: PyramidSpec, weights: Mapping[str, Tensor], name: str) -> Pyramid:
        """The spec is all there is."""
        if weights:
            raise Damaged(f"{name} has weights, and its codec has none; `logcl verify` says what is intact")
        return cls(spec)

    def restore_codes(
        self, tensors: Mapping[str, Tensor], indices: NDArray[np.int64], level_bytes: int, name: str
    ) -> PyramidCodes:
        """Streams, and what they hold."""
        del level_bytes  # every stream has its own bytes
        return PyramidCodes.restore(tensors, len(indices), self.spec.shape, name)

    @classmethod
    def steps(cls, settings: PyramidSettings, samples: int, *, warm: bool) -> int:
        """Images that are encoded, on trial or for good."""
        del settings, warm
        return samples + TRIALS * min(samples, _TRIED)


def joined(parts: Sequence[PyramidCodes]) -> PyramidCodes:
    """All images, in order; their streams stay as they are."""
    return replace(
        parts[-1],
        streams=ans.join([part.streams for part in parts]),
        steps=np.concatenate([part.steps for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


def _encoded(x: NDArray[np.uint8], step: int) -> tuple[PyramidCodes, NDArray[np.float64]]:
    """Codes, and the squared error of each image."""
    shape: ImageShape = (x.shape[1], x.shape[2], x.shape[3])
    group = pyramid_coder.together(shape)
    many = pyramid_coder.at_once(shape) * group
    parts, errors = [], []
    for start in range(0, len(x), many):
        some = x[start : start + many]
        streams = -(-len(some) // group)
        coded, decoded = pyramid_coder.encode(to_unit(torch.from_numpy(some)), np.full(streams, step))
        counts = np.full(streams, group)
        counts[-1] = len(some) - group * (streams - 1)
        parts.append(PyramidCodes(coded, np.full(streams, step, np.uint8), counts.astype(np.uint8), shape))
        errors.append(squared_errors(some, decoded.numpy()))
    return joined(parts), np.concatenate(errors)


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


def _possible(shape: ImageShape) -> bool:
    channels, height, width = shape
    return channels in (1, 3) and 1 < height * width <= _LARGEST_IMAGE


def _suits(codec: Codec, shape: ImageShape) -> TypeGuard[Pyramid]:
    """Whether codes of this codec can stand beside new ones."""
    return isinstance(codec, Pyramid) and codec.spec.shape == shape
