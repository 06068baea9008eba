"""A few shades of grey, coded in context: for writing, drawings, and whatever has flat backgrounds.

    image ── nearest of K shades, or one that takes fewer bits ── symbol ── context_coder.py ── stream

No transform: a stroke is a few sharp edges, which frequencies describe badly and neighbours predict well.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from logcl.codecs.base import Codec, CodecSpec, FitInput, Fitted, RateSettings, Rows
from logcl.codecs.coding import ans
from logcl.codecs.pixels.coder import ContextCoder
from logcl.codecs.pixels.codes import ContextCodes, joined
from logcl.codecs.pixels.model import (
    LARGEST_INPUT,
    MOST_SYMBOLS,
    ContextModel,
    Floats,
    Lattice,
    Symbols,
    train,
)
from logcl.codecs.pixels.shades import lloyd, quality_of
from logcl.codecs.rate_control import TRIALS, Encoded, RateControl, Scale, runs
from logcl.core.errors import BadSettings
from logcl.core.progress import CountedProgress, Silent
from logcl.core.settings import ImageShape, Recipe
from logcl.nn.training import Work

_REACH = 3  # pixels that a context reaches to the left, right and up
_CAUSAL = [
    *((0, -step) for step in (1, 2, 3)),
    *((-1, step) for step in range(-3, 4)),
    *((-2, step) for step in range(-3, 4)),
    *((-3, step) for step in (-1, 0, 1)),
]
_LARGEST_IMAGE = 2**14  # pixels: the time per image grows with them
_LONGEST = 1024  # pixels of a side: so many rows are decoded one after the other
_USUAL = 1500  # pixels of an image that take 2 milliseconds
_LEARNT, _TRIED = 2048, 256  # images that shades and network are fitted to; on which the rate is chosen
_LEARNT_PIXELS = 2**22  # of all images that shades and network are fitted to
_BLOCK = 2048  # images after which the rate is corrected
_MARGIN = 0.05  # dB by which the nearest shades must be better than asked for
_SHORT = 0.3  # dB by which another level's shades may be poorer than asked for
_COUNTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)  # of shades that are tried
_STEPS_PER_IMAGE = 4  # optimiser steps that an image justifies
_SAVED = 1.35  # excess of bytes that the choice of shades makes up for
# A bit is worth 2^(-quality / 8) of the squared error of a pixel.
_PER_OCTAVE = 8
_SCALE = Scale(0, 120, error_slope=-0.05, bytes_slope=0.02, usual=52, dear=0)


class PixelsSettings(RateSettings):
    """The rate, and the size of the network that predicts pixels."""

    name: Literal["pixels"] = "pixels"
    """Which codec."""
    width: int = Field(32, ge=4, le=64)
    """Hidden units of the network."""
    train_steps: int = Field(1200, ge=10, le=100_000)
    """Optimiser steps of a training at most; there is another one for four times as many samples."""

    @classmethod
    def for_images(cls, image_shape: ImageShape) -> PixelsSettings:
        """26.5 dB, as much as strokes need."""
        del image_shape
        return cls(psnr=26.5)

    @classmethod
    def possible(cls, image_shape: ImageShape) -> bool:
        """Whether the codec can hold images of this shape."""
        return _possible(image_shape)

    @classmethod
    def candidate(cls, image_shape: ImageShape, samples: int) -> PixelsSettings | None:
        """For small grey images, if there are enough to train a network on."""
        _, height, width = image_shape
        suits = _possible(image_shape) and 64 <= height * width <= _LARGEST_IMAGE and samples > 1
        return cls.for_images(image_shape) if suits else None


class PixelsSpec(CodecSpec):
    """The shades, and what the network was trained for."""

    name: Literal["pixels"] = "pixels"
    image_shape: ImageShape
    shades: tuple[Annotated[int, Field(ge=0, le=255)], ...] = Field(min_length=2, max_length=MOST_SYMBOLS)
    trained: int = Field(ge=1, lt=2**62)
    """Samples of the level that the network was trained for."""
    quality: int = Field(ge=_SCALE.lowest, le=_SCALE.highest)
    """Of the newest samples: what a bit is worth."""

    @model_validator(mode="after")
    def _sound(self) -> PixelsSpec:
        if any(after <= before for before, after in zip(self.shades, self.shades[1:], strict=False)):
            raise ValueError("shades do not ascend")
        if not _possible(self.image_shape):
            raise ValueError("this codec has no images of such a shape")
        return self

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.image_shape


class Pixels(Codec):
    """Shades, and the network that predicts them."""

    Settings = PixelsSettings
    Spec = PixelsSpec
    copies_codes = True
    warm_starts = True
    spec: PixelsSpec

    def __init__(self, spec: PixelsSpec, model: ContextModel) -> None:
        self.spec, self.model = spec, model

    @functools.cached_property
    def coder(self) -> ContextCoder:
        """What codes the symbols of images."""
        return ContextCoder(self.model, lattice(self.spec.shape), _inputs(self.spec.shades))

    @functools.cached_property
    def points(self) -> Floats:
        """The shades, in [0, 1]."""
        points: Floats = np.array(self.spec.shades, np.float32) / np.float32(255)
        return points

    @classmethod
    def fit(
        cls, samples: FitInput, settings: PixelsSettings, work: Work, starts: Sequence[Codec] = ()
    ) -> Fitted:
        """Choose shades and train the network, unless those of another level suit; code new samples.

        Samples of merged levels keep their symbols.
        """
        shape = samples.image_shape
        if not _possible(shape):
            raise BadSettings(
                f"the codec pixels is for grey images of up to {_LARGEST_IMAGE:,} pixels and {_LONGEST:,} a "
                f"side, but images are {'x'.join(map(str, shape))}; choose another one with --codec cosine"
            )
        merged: list[tuple[Pixels, Any]] = [
            (codec, codes) for codec, codes in samples.merged if _suits(codec, shape)
        ]
        # Levels that were fitted to different images may have more shades together than a codec can.
        shades = {shade for codec, _ in merged for shade in codec.spec.shades}
        kept = len(merged) == len(samples.merged) and len(shades) <= MOST_SYMBOLS
        images = samples.new if kept else samples.x
        alike = [codec for codec, _ in merged[::-1]] + [codec for codec in starts if _suits(codec, shape)]
        alike.sort(key=lambda codec: -codec.spec.trained)
        with work.counting(cls.steps(settings, len(samples), warm=bool(alike))) as made:
            quiet = replace(work, progress=CountedProgress(Silent(), made))
            codec = cls._fitted(images, merged if kept else [], alike, len(samples), settings, quiet)
            parts = [codec.taken(other, codes) for other, codes in merged] if kept else []
            order, first = np.arange(len(samples)), len(samples) - len(images)

            def encode(x: NDArray[np.uint8], quality: int) -> Encoded:
                codes, error = codec.coded(x, quality)
                made(len(x))
                return Encoded(codes, codes.nbytes / len(x), error)

            control = RateControl(encode, _SCALE, settings, _BLOCK, _TRIED)
            quality: int | None = alike[0].spec.quality if alike else None
            for start, stop in runs(samples.groups, first):
                blocks, quality = control.encode(images[start - first : stop - first], quality)
                parts += [block.codes for block in blocks]
                order[start:stop] = start + np.concatenate([block.rows for block in blocks])
        if quality is not None and codec not in alike:  # levels whose codecs are equal store one of them
            codec = cls(codec.spec.model_copy(update={"quality": quality}), codec.model)
        codes = joined(parts) or _recoded(codec, parts)
        return Fitted(codec, codes, order, kept and bool(samples.merged))

    @classmethod
    def _fitted(
        cls,
        images: NDArray[np.uint8],
        merged: Sequence[tuple[Pixels, ContextCodes]],
        alike: Sequence[Pixels],
        samples: int,
        settings: PixelsSettings,
        work: Work,
    ) -> Pixels:
        """A codec for images and for the symbols of merged levels, all of whose shades it has."""
        some = images[:: _step(len(images), images[0].size if len(images) else 1)]
        old = sorted({shade for codec, _ in merged for shade in codec.spec.shades})
        start = alike[0] if alike else None
        if start is not None and set(old) <= set(start.spec.shades) and start.suffices(some, settings):
            if samples < 4 * start.spec.trained or not settings.train_steps:
                return start
            shades: tuple[int, ...] = start.spec.shades
        else:
            shades = _shades(some, old, settings, work)
        model = start.model if start is not None and start.spec.shades == shades else None
        spec = PixelsSpec(
            image_shape=(images.shape[1], images.shape[2], images.shape[3]), shades=shades, trained=samples,
            quality=start.spec.quality if start is not None else _SCALE.usual,
        )  # fmt: skip
        symbols = [_numbers(codec.spec.shades, shades)[_some_symbols(codes)] for codec, codes in merged]
        return _trained(spec, some, symbols, settings, work, model)

    def suffices(self, x: NDArray[np.uint8], settings: PixelsSettings) -> bool:
        """Whether the shades are as many as these images need, and not many more."""
        if settings.psnr is None or not len(x):
            return True
        return settings.psnr - _SHORT <= quality_of(x, np.array(self.spec.shades)) <= settings.psnr + 4

    def coded(self, x: NDArray[np.uint8], quality: int) -> tuple[ContextCodes, float]:
        """Codes of images (n, C, H, W), and their mean squared error."""
        parts, error = [], 0.0
        for rows in self.coder.batches(len(x)):
            values = _values(x[rows])
            streams, symbols = self.coder.choose(values, self.points, 2.0 ** (-quality / _PER_OCTAVE))
            parts.append(streams)
            error += float(np.square(self.points[symbols] - values).sum())
        return ContextCodes(self.coder, ans.join(parts), len(x)), error / x.size

    def encode(self, x: NDArray[np.uint8]) -> ContextCodes:
        """Codes of images (n, C, H, W), of the quality that the newest samples have."""
        return self.coded(x, self.spec.quality)[0]

    def taken(self, other: Pixels, codes: ContextCodes) -> ContextCodes:
        """The same symbols, coded with this network; this codec has all shades of the other one."""
        if (other.spec.shades, other.model) == (self.spec.shades, self.model):
            return replace(codes, coder=self.coder)
        numbers = _numbers(other.spec.shades, self.spec.shades)
        every = np.arange(len(codes))
        streams = self.coder.encode_symbols(lambda rows: numbers[codes.symbols(every[rows])], len(codes))
        return ContextCodes(self.coder, streams, len(codes), codes.name)

    def decode(self, codes: ContextCodes, rows: Rows) -> Tensor:
        """Images (m, C, H, W)."""
        symbols = codes.symbols(rows)
        return torch.from_numpy(np.array(self.spec.shades, np.uint8)[symbols].reshape(-1, *self.spec.shape))

    def weights(self) -> dict[str, Tensor]:
        """The network."""
        return self.model.tensors()

    @classmethod
    def restore(cls, spec: PixelsSpec, weights: Mapping[str, Tensor], name: str) -> Pixels:
        """Check the network's size."""
        model = ContextModel.restore(weights, lattice(spec.shape), len(spec.shades), name)
        return cls(spec, model)

    def restore_codes(
        self, tensors: Mapping[str, Tensor], indices: NDArray[np.int64], level_bytes: int, name: str
    ) -> ContextCodes:
        """Streams."""
        del level_bytes  # every stream has its own bytes
        return ContextCodes.restore(self.coder, tensors, len(indices), name)

    @classmethod
    def effort(cls, spec: Mapping[str, Any], image_shape: ImageShape) -> int:
        """It grows with the pixels and with the shades."""
        _, height, width = image_shape
        shades = spec.get("shades")
        many = 8 + (min(len(shades), MOST_SYMBOLS) if isinstance(shades, (list, tuple)) else MOST_SYMBOLS)
        return many * (height * width // 4 + max(height * width - _USUAL, 0)) // 8

    @classmethod
    def steps(cls, settings: PixelsSettings, samples: int, *, warm: bool) -> int:
        """Optimiser steps, and images that are encoded, on trial or for good."""
        trained = 0 if warm else settings.train_steps
        return trained + samples + TRIALS * min(samples, _TRIED)


@functools.cache
def lattice(shape: ImageShape) -> Lattice:
    """Pixels row by row; those of a wave are far enough apart not to see each other."""
    _, height, width = shape
    rows, columns = (grid.ravel() for grid in np.mgrid[0:height, 0:width])
    neighbours = np.empty((height * width, len(_CAUSAL)), np.intp)
    for place, (down, right) in enumerate(_CAUSAL):
        y, x = rows + down, columns + right
        inside = (y >= 0) & (x >= 0) & (x < width)
        neighbours[:, place] = np.where(inside, y * width + x, height * width)
    across = [
        np.rint((2 * at / max(side - 1, 1) - 1) * LARGEST_INPUT)
        for at, side in ((rows, height), (columns, width))
    ]
    places = np.stack([*across, *map(np.abs, across)], axis=1).astype(np.float32)
    wave = columns + (_REACH + 1) * rows
    return Lattice(neighbours, places, [np.flatnonzero(wave == number) for number in np.unique(wave)])


def _inputs(shades: Sequence[int]) -> Floats:
    return np.rint(np.array(shades) * (LARGEST_INPUT / 255)).astype(np.float32)


def _numbers(old: Sequence[int], new: Sequence[int]) -> NDArray[np.uint8]:
    """Symbols of shades among others, which include them."""
    return np.searchsorted(new, old).astype(np.uint8)


def _some_symbols(codes: ContextCodes) -> Symbols:
    every = np.arange(len(codes))
    return codes.symbols(every[:: _step(len(codes), len(codes.coder.lattice))])


def _step(images: int, pixels: int) -> int:
    """Every how many images one is learnt from."""
    return max(images // min(_LEARNT, max(_LEARNT_PIXELS // pixels, 1)), 1)


def _shades(
    x: NDArray[np.uint8], old: Sequence[int], settings: PixelsSettings, work: Work
) -> tuple[int, ...]:
    """As few shades as reach the quality, or as many as the bytes allow; all old ones are among them."""
    size: ImageShape = (x.shape[1], x.shape[2], x.shape[3])
    if not len(x):
        return tuple(old)
    extras = _COUNTS if not old else (0, 1, *_COUNTS)
    best = lloyd(x, old, extras[0])
    for extra in (extra for extra in extras if len(old) + extra <= MOST_SYMBOLS):
        tried = lloyd(x, old, extra)
        if settings.bytes_per_sample is not None and tried != best:
            spec = PixelsSpec(image_shape=size, shades=tried, trained=1, quality=_SCALE.usual)
            brief = settings.model_copy(update={"train_steps": max(settings.train_steps // 4, 10)})
            some = x[:: -(-len(x) // _TRIED)]
            codes, _ = _trained(spec, some, [], brief, work, None).coded(some, _SCALE.usual)
            excess = codes.nbytes / len(some) / settings.bytes_per_sample
            if excess > 1:  # a little too much can be saved by choosing cheaper shades
                return best if excess > _SAVED else tried
        best = tried
        if settings.psnr is not None and quality_of(x, np.array(tried)) >= settings.psnr + _MARGIN:
            return best
    return best


def _trained(
    spec: PixelsSpec,
    x: NDArray[np.uint8],
    others: Sequence[Symbols],
    settings: PixelsSettings,
    work: Work,
    model: ContextModel | None,
) -> Pixels:
    """A network for the symbols of images and for others; then for those that it makes cheap."""
    grid, inputs = lattice(spec.shape), _inputs(spec.shades)
    nearest = np.abs(np.arange(256)[:, None] - np.array(spec.shades)).argmin(axis=1).astype(np.uint8)
    symbols = nearest[x.reshape(len(x), -1)]
    whole = min(settings.train_steps, _STEPS_PER_IMAGE * (len(x) + sum(map(len, others))))
    shares = (2 / 3, 1 / 3)
    for share in shares:
        recipe = Recipe(epochs=1, min_steps=max(round(whole * share), 5), batch_size=32, learning_rate=5e-3)
        given = np.concatenate([symbols, *others])
        steps = recipe.min_steps
        some = given[
            :: max(len(given) * recipe.batch_size // (steps * recipe.batch_size * recipe.batch_size), 1)
        ]
        model = train(grid, inputs, some, recipe, work, model, settings.width)
        codec = Pixels(spec, model)
        if len(x) and share != shares[-1]:
            rate = 2.0 ** (-spec.quality / _PER_OCTAVE)
            batches = codec.coder.batches(len(x))
            symbols = np.concatenate(
                [codec.coder.choose(_values(x[some]), codec.points, rate)[1] for some in batches]
            )
    return codec


def _recoded(codec: Pixels, parts: Sequence[ContextCodes]) -> ContextCodes:
    """All images in streams of the usual length."""
    ends = np.cumsum([len(part) for part in parts])

    def symbols(rows: slice) -> Symbols:
        found = []
        for part, end in zip(parts, ends.tolist(), strict=True):
            start = end - len(part)
            mine = np.arange(max(rows.start, start), min(rows.stop, end)) - start
            if len(mine):
                found.append(part.symbols(mine))
        return np.concatenate(found)

    count = int(ends[-1])
    return ContextCodes(codec.coder, codec.coder.encode_symbols(symbols, count), count, parts[-1].name)


def _values(x: NDArray[np.uint8]) -> Floats:
    """Images (n, C, H, W) as rows of pixels in [0, 1]."""
    found: Floats = x.reshape(len(x), -1).astype(np.float32) / np.float32(255)
    return found


def _possible(shape: ImageShape) -> bool:
    channels, height, width = shape
    return channels == 1 and height * width <= _LARGEST_IMAGE and max(height, width) <= _LONGEST


def _suits(codec: Codec, shape: ImageShape) -> TypeGuard[Pixels]:
    return isinstance(codec, Pixels) and codec.spec.shape == shape
