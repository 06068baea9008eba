"""A pyramid of small cosine transforms, coded in context: for small images of anything but writing.

    image ── 4x4 transforms, of their means again ── / step ── integers ── pyramid_streams.py ── streams

The networks that predict the integers come with this package; they were trained on photographs.
So nothing is trained, a memory holds no weights, and a sample's integers are kept when levels merge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator
from torch import Tensor

from logcl.codecs.base import Codec, CodecSpec, FitInput, Fitted, RateSettings, Rows
from logcl.codecs.pyramid import context as pyramid_context
from logcl.codecs.pyramid import streams as pyramid_streams
from logcl.codecs.pyramid.codes import PyramidCodes, joined
from logcl.codecs.pyramid.context import STEPS, Format
from logcl.codecs.pyramid.layout import SIDE
from logcl.codecs.pyramid.networks import LATEST
from logcl.codecs.rate_control import TRIALS, Encoded, RateControl, Scale, runs
from logcl.core.errors import BadSettings, Damaged
from logcl.core.images import squared_errors
from logcl.core.settings import ImageShape
from logcl.nn.images import to_unit
from logcl.nn.training import Work

_LARGEST_IMAGE, _LONGEST = 2**12, 256  # pixels, of an image and of a side: symbols are decoded one by one
_USUAL = 6000  # values of an image that take 2 milliseconds
_FAST_IMAGE = 48 * 48  # pixels up to which it competes by default: the time per image grows with them
_TRIED = 128  # images on which the first step is chosen
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
    def possible(cls, image_shape: ImageShape) -> bool:
        """Whether the codec can hold images of this shape."""
        return _possible(image_shape)

    @classmethod
    def candidate(cls, image_shape: ImageShape, samples: int) -> PyramidSettings | None:
        """For small images."""
        del samples
        _, height, width = image_shape
        suits = _possible(image_shape) and 64 <= height * width <= _FAST_IMAGE
        return cls.for_images(image_shape) if suits else None


class PyramidSpec(CodecSpec):
    """Which networks predict the integers; and of what images."""

    name: Literal["pyramid"] = "pyramid"
    image_shape: ImageShape
    networks: Literal[1, 2]
    """Version of the networks in this package."""
    step: int = Field(ge=0, lt=STEPS)
    """Number of the step of the newest samples, see `pyramid_context.step_of`."""

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


class Pyramid(Codec):
    """A step; everything else is part of the package."""

    Settings = PyramidSettings
    Spec = PyramidSpec
    copies_codes = True
    warm_starts = True
    spec: PyramidSpec

    def __init__(self, spec: PyramidSpec, restored: bool = True) -> None:
        """restored: whether the traces of quantisation are removed from decoded images."""
        self.spec, self._restored = spec, restored

    @property
    def _format(self) -> Format:
        return Format(self.spec.shape, self.spec.networks)

    @classmethod
    def fit(
        cls, samples: FitInput, settings: PyramidSettings, work: Work, starts: Sequence[Codec] = ()
    ) -> Fitted:
        """Encode new samples; those of merged levels keep their integers."""
        shape = samples.image_shape
        if not _possible(shape):
            raise BadSettings(
                f"the codec pyramid is for 1 or 3 channels, up to {_LARGEST_IMAGE:,} pixels and {_LONGEST} a "
                f"side, but images are {'x'.join(map(str, shape))}; choose another one with --codec cosine"
            )
        merged: list[tuple[Pyramid, Any]] = [
            (codec, codes) for codec, codes in samples.merged if _suits(codec, shape)
        ]
        kept = len(merged) == len(samples.merged)
        images = samples.new if kept else samples.x
        alike = [codec for codec, _ in merged[::-1]] + [codec for codec in starts if _suits(codec, shape)]
        step = alike[0].spec.step if alike else None
        parts: list[PyramidCodes] = []
        if kept:
            parts = [
                codes
                if codec.spec.networks == LATEST
                else codes.recoded(codes.steps.astype(np.int64), LATEST)
                for codec, codes in merged
            ]
        order = np.arange(len(samples))
        with work.counting(cls.steps(settings, len(samples), warm=bool(alike))) as made:
            if len(images):

                def encode(x: NDArray[np.uint8], quality: int) -> Encoded:
                    codes, errors = _encoded(x, quality)
                    made(len(x))
                    return Encoded(codes, codes.nbytes / len(x), float(errors.mean()))

                many = max(pyramid_context.at_once(shape) * pyramid_context.together(shape), 32)
                control = RateControl(encode, _SCALE, settings, many, _TRIED)
                first = len(samples) - len(images)
                for start, stop in runs(samples.groups, first):
                    blocks, step = control.encode(images[start - first : stop - first], step)
                    parts += [block.codes for block in blocks]
                    order[start:stop] = start + np.concatenate([block.rows for block in blocks])
        codec = cls(PyramidSpec(image_shape=shape, networks=LATEST, step=step or 0))
        return Fitted(codec, joined(parts), order, kept and bool(samples.merged))

    def encode(self, x: NDArray[np.uint8]) -> PyramidCodes:
        """Codes with the step of the newest samples."""
        return _encoded(x, self.spec.step, self.spec.networks)[0]

    def decode(self, codes: PyramidCodes, rows: Rows) -> Tensor:
        """Images (m, C, H, W)."""
        wanted, places = codes.holding(rows)
        return codes.part(wanted).decode(self._restored)[torch.from_numpy(places)]

    def for_training(self) -> Pyramid:
        """Without restoration, which costs accuracy: see docs/paper.md, "Deviations"."""
        return Pyramid(self.spec, restored=False)

    def coarsen(self, codes: PyramidCodes, factor: int = 2) -> PyramidCodes:
        """The same integers in larger steps."""
        steps = codes.steps.astype(np.int64)
        coarse = np.maximum(steps - round(pyramid_context.PER_OCTAVE * math.log2(factor)), 0)
        if np.array_equal(coarse, steps):
            return codes
        return codes.recoded(coarse, self.spec.networks, pyramid_streams.WORTH)

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
        return PyramidCodes.restore(tensors, len(indices), self._format, name)

    @classmethod
    def effort(cls, spec: Mapping[str, Any], image_shape: ImageShape) -> int:
        """It grows with the blocks."""
        del spec
        channels, height, width = image_shape
        values = channels * SIDE**2 * -(-height // SIDE) * -(-width // SIDE)
        return values // 2 + 4 * max(values - _USUAL, 0)

    @classmethod
    def steps(cls, settings: PyramidSettings, samples: int, *, warm: bool) -> int:
        """Images that are encoded, on trial or for good."""
        del settings, warm
        return samples + TRIALS * min(samples, _TRIED)


def _encoded(
    x: NDArray[np.uint8], step: int, networks: int = LATEST
) -> tuple[PyramidCodes, NDArray[np.float64]]:
    """Codes, and the squared error of each image."""
    shape: ImageShape = (x.shape[1], x.shape[2], x.shape[3])
    format_ = Format(shape, networks)
    group = pyramid_context.together(shape)
    many = pyramid_context.at_once(shape) * group
    parts, errors = [], []
    for start in range(0, len(x), many):
        some = x[start : start + many]
        streams = -(-len(some) // group)
        coded, decoded = pyramid_streams.encode(
            to_unit(torch.from_numpy(some)), np.full(streams, step), networks
        )
        counts = np.full(streams, group)
        counts[-1] = len(some) - group * (streams - 1)
        parts.append(PyramidCodes(coded, np.full(streams, step, np.uint8), counts.astype(np.uint8), format_))
        errors.append(squared_errors(some, decoded.numpy()))
    return joined(parts), np.concatenate(errors)


def _possible(shape: ImageShape) -> bool:
    channels, height, width = shape
    small = 1 < height * width <= _LARGEST_IMAGE and max(height, width) <= _LONGEST
    return channels in (1, 3) and small


def _suits(codec: Codec, shape: ImageShape) -> TypeGuard[Pyramid]:
    """Whether codes of this codec can stand beside new ones."""
    return isinstance(codec, Pyramid) and codec.spec.shape == shape
