"""Rounded cosine coefficients, for photographs: nothing is trained, and what was rounded once stays as it is.

    image ── blocks ── DCT-II over channels, rows, columns ── / step ── round ── symbol ── entropy coder

An image is cut into equal blocks of at most 32x32. On natural images the cosine transform is close to the
best linear one; across three channels it gives brightness and two colour differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl.codecs.base import Codec, CodecSpec, FitInput, Fitted, RateSettings, Rows
from logcl.codecs.coding import entropy
from logcl.codecs.quantised import FINENESS, ROUNDING, QuantisedCodec, QuantisedCodes
from logcl.codecs.transform import basis
from logcl.core.errors import Damaged
from logcl.core.images import rows_at_once, squared_errors
from logcl.core.settings import ImageShape
from logcl.nn.device import choose_device
from logcl.nn.images import in_blocks
from logcl.nn.training import Work

_LARGEST_BLOCK = 32
_LARGE = 2**20  # values of an image that is decoded some blocks at a time
_TOLERANCE, _POORER = 0.1, 0.12  # excess of bytes, or of error, up to which the step of another level is kept
_COARSEST, _TRIALS = 4.0, 14  # the largest step; steps tried until one is chosen
_CALIBRATION, _CALIBRATED = 2048, 2**24  # images that the step is chosen on, and values in all of them


class CosineSettings(RateSettings):
    """The rate is all there is to choose."""

    name: Literal["cosine"] = "cosine"
    """Which codec."""

    @classmethod
    def for_images(cls, image_shape: ImageShape) -> CosineSettings:
        """30 dB."""
        del image_shape
        return cls(psnr=30)

    @classmethod
    def candidate(cls, image_shape: ImageShape, samples: int) -> CosineSettings:
        """For all images."""
        del samples
        return cls.for_images(image_shape)


class CosineSpec(CodecSpec):
    """The step is the only number that decoding needs: there are no weights."""

    name: Literal["cosine"] = "cosine"
    image_shape: ImageShape
    step: float = Field(gt=0, le=2**14)
    """Of a coefficient, pixels in [0, 1]."""

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.image_shape


class Cosine(QuantisedCodec):
    """A step size."""

    Settings = CosineSettings
    Spec = CosineSpec
    warm_starts = True
    spec: CosineSpec

    def __init__(self, spec: CosineSpec) -> None:
        self.spec = spec
        self.blocks = math.prod(grid(spec.shape))

    @classmethod
    def fit(
        cls, samples: FitInput, settings: CosineSettings, work: Work, starts: Sequence[Codec] = ()
    ) -> Fitted:
        """Choose the step, and round.

        The step of another level is kept if it gives new samples the quality, or comes near the target bytes:
        what was rounded with it before is then rounded to itself, so merging levels loses nothing.
        """
        shape = samples.image_shape
        step = next((start.spec.step for start in starts if isinstance(start, Cosine)), None)
        with work.counting(cls.steps(settings, len(samples), warm=step is not None)) as made:
            judged = samples.x if step is None or settings.psnr is None else samples.new
            if step is None or len(judged):
                some = judged[:: _stride(len(judged), math.prod(shape))]
                step = _calibrated(some, settings, step, made)
            codec = cls(CosineSpec(image_shape=shape, step=step))
            codes = codec.encode(samples.x, made)
        return Fitted(codec, codes, np.arange(len(samples)))

    def encode(self, x: NDArray[np.uint8], made: Callable[[int], None] | None = None) -> QuantisedCodes:
        """Round the coefficients of images (n, C, H, W); `made` counts the images that are coded."""
        rows, many = rows_at_once(self.spec.shape), self.blocks
        # At once they would take several times as much room as floats.
        symbols = np.empty((len(x) * many, self.length), np.int16)
        for start in range(0, len(x), rows):
            some = in_blocks(
                lambda images: rounded(coefficients(images), self.spec.step), x[start : start + rows]
            )
            symbols[start * many : start * many + len(some)] = some
        report = None if made is None else lambda coded: made(coded // many)
        return QuantisedCodes(entropy.encode(symbols, report), many)

    @property
    def length(self) -> int:
        """Coefficients of a block."""
        return math.prod(block(self.spec.shape))

    def images(self, inputs: Tensor) -> Tensor:
        """Quarters of symbols (n · blocks, coefficients) → images (n, C, H, W) in [0, 1]."""
        return self._joined(self._tiles(inputs))

    def decode(self, codes: QuantisedCodes, rows: Rows) -> Tensor:
        """Images (m, C, H, W); of large ones some blocks at a time."""
        if math.prod(self.spec.shape) <= _LARGE:
            return super().decode(codes, rows)
        images = torch.empty((len(rows), *self.spec.shape), dtype=torch.uint8)
        lines, columns = grid(self.spec.shape)
        height = block(self.spec.shape)[1]
        some = max(4 * _LARGE // (columns * self.length), 1)  # lines of blocks, entropy decoded at once
        for image, row in zip(images, rows, strict=True):
            for first in range(0, lines, some):
                wanted = np.arange(first * columns, min(first + some, lines) * columns)
                symbols = codes.symbols(np.array([row]), wanted).reshape(-1, columns, self.length)
                for line, whole in enumerate(symbols, start=first):
                    parts = np.array_split(whole, min(-(-whole.size // 2**19), columns))
                    inputs = (torch.from_numpy(codes.scaled(part)).to(choose_device()) for part in parts)
                    tiles = [self._tiles(part).mul_(255).round_().to("cpu", torch.uint8) for part in inputs]
                    strip = torch.cat(tiles).permute(1, 2, 0, 3).flatten(2)
                    place = image[:, line * height : (line + 1) * height]
                    place[:] = strip[:, : place.shape[1], : place.shape[2]]
        return images

    def _tiles(self, inputs: Tensor) -> Tensor:
        """(n · blocks, coefficients) → (n · blocks, C, h, w) in [0, 1]."""
        sides = block(self.spec.shape)
        bases = (basis(side).to(inputs.device) for side in sides)
        pixels = torch.einsum("nuvw,uc,vh,wx->nchx", inputs.unflatten(1, sides), *bases)
        return pixels.mul_(self.spec.step * FINENESS).add_(0.5).clamp_(0, 1)

    def _joined(self, tiles: Tensor) -> Tensor:
        """(n · blocks, C, h, w) → (n, C, H, W)."""
        shape = self.spec.shape
        (channels, height, width), (rows, columns) = block(shape), grid(shape)
        tiles = tiles.reshape(-1, rows, columns, channels, height, width)
        image = tiles.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, rows * height, columns * width)
        return image[:, :, : shape[1], : shape[2]]

    @classmethod
    def restore(cls, spec: CosineSpec, weights: Mapping[str, Tensor], name: str) -> Cosine:
        """The spec is all there is."""
        if weights:
            raise Damaged(f"{name} has weights, and its codec has none; `logcl verify` says what is intact")
        return cls(spec)

    @classmethod
    def steps(cls, settings: CosineSettings, samples: int, *, warm: bool) -> int:
        """Images that are coded, or rounded on trial to choose a step."""
        del settings
        return samples + (1 if warm else _TRIALS) * len(range(0, samples, _stride(samples)))


def _stride(samples: int, values: int = 1) -> int:
    """Every how many images the step is chosen on one, of so many values."""
    return max(samples // min(_CALIBRATION, max(_CALIBRATED // values, 1)), 1)


def _calibrated(
    x: NDArray[np.uint8], settings: CosineSettings, kept: float | None, made: Callable[[int], None]
) -> float:
    """The step that meets the target on these images, or the `kept` one if that comes near it."""
    shape: ImageShape = (x.shape[1], x.shape[2], x.shape[3])
    exact = in_blocks(coefficients, x)

    def excess(step: float) -> float:
        symbols = rounded(exact, step)
        made(len(x))
        if settings.psnr is None:
            spent = len(exact) // len(x) * entropy.mean_bytes(symbols.numpy().astype(np.int16))
            return settings.excess(spent, 0)
        # Of images, not of coefficients: what would be darker than black is black, and nothing is lost.
        codec, errors = Cosine(CosineSpec(image_shape=shape, step=step)), []
        for rows in np.array_split(np.arange(len(x)), -(-len(x) // rows_at_once(shape))):
            some = symbols[rows[0] * codec.blocks : (rows[-1] + 1) * codec.blocks]
            decoded = codec.images(some / FINENESS).mul_(255).round_().to(torch.uint8)
            errors.append(squared_errors(x[rows], decoded.numpy()))
        return settings.excess(0, float(np.concatenate(errors).mean()))

    if kept is not None:
        missed = excess(kept)
        if abs(missed) <= _TOLERANCE if settings.psnr is None else missed >= -_POORER:
            return kept
    # Finer steps would need larger symbols than there are: a white image would turn grey.
    finest = 0.5 * math.sqrt(exact.shape[1]) / entropy.LARGEST
    return _bisect(excess, finest, by_quality=settings.psnr is not None)


def _bisect(excess: Callable[[float], float], finest: float, *, by_quality: bool) -> float:
    """The largest step of the quality asked for, or the smallest that is not too expensive."""
    coarsest = _COARSEST
    for _ in range(_TRIALS):
        middle = _few_digits(math.sqrt(finest * coarsest))
        finest, coarsest = (middle, coarsest) if excess(middle) > 0 else (finest, middle)
    return _few_digits(finest if by_quality else coarsest)


def _few_digits(step: float) -> float:
    """Levels should agree exactly."""
    return float(np.float16(step * FINENESS)) / FINENESS


def rounded(exact: Tensor, step: float) -> Tensor:
    """Coefficients in whole steps; those near zero become zero."""
    size = (exact.abs() / step + ROUNDING).floor().clamp(max=entropy.LARGEST)
    return size * exact.sign()


def coefficients(images: Tensor) -> Tensor:
    """Images (n, C, H, W) in [0, 1] → coefficients of their blocks, (n · blocks, coefficients)."""
    shape: ImageShape = (images.shape[1], images.shape[2], images.shape[3])
    (channels, height, width), (rows, columns) = block(shape), grid(shape)
    missing = (0, columns * width - shape[2], 0, rows * height - shape[1])
    padded = nn.functional.pad(images - 0.5, missing, mode="replicate")
    tiles = padded.reshape(-1, channels, rows, height, columns, width).permute(0, 2, 4, 1, 3, 5)
    bases = (basis(side).to(images.device) for side in (channels, height, width))
    blocks = tiles.reshape(-1, channels, height, width)
    return torch.einsum("nchx,uc,vh,wx->nuvw", blocks, *bases).flatten(1)


def grid(image_shape: ImageShape) -> tuple[int, int]:
    """Rows and columns of blocks."""
    _, height, width = image_shape
    return -(-height // _LARGEST_BLOCK), -(-width // _LARGEST_BLOCK)


def block(image_shape: ImageShape) -> ImageShape:
    """Channels, height and width of a block; blocks are equal, so the last may reach over the edge."""
    channels, height, width = image_shape
    rows, columns = grid(image_shape)
    return channels, -(-height // rows), -(-width // columns)
