"""The codec seam: what every codec does, whatever it is inside.

    images ── fit ──▶ codec (weights, shared by levels) + codes (one per sample)
    codec + codes ── decode ──▶ images

A codec is one class in one file. It is found by its name: `codecs/<name>.py` here, or the entry-point group
`logcl.codecs` of an installed package. Nothing outside that file branches on the name.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from logcl.core.progress import Progress
from logcl.core.settings import Frozen, ImageShape, Precision
from logcl.core.trials import Trial
from logcl.nn import blobs
from logcl.nn.networks import AutoencoderSpec
from logcl.nn.training import Work

Rows = NDArray[np.integer[Any]]
"""0-based positions of samples among the codes of a level."""


class CodecSettings(Frozen):
    """What a user may choose about a codec."""

    name: str
    """Which codec."""

    @classmethod
    def for_images(cls, image_shape: ImageShape) -> CodecSettings:
        """Good settings for images of this shape: the defaults, unless a codec knows better."""
        del image_shape
        return cls.model_validate({})

    @classmethod
    def possible(cls, image_shape: ImageShape) -> bool:
        """Whether the codec can hold images of this shape."""
        del image_shape
        return True

    @classmethod
    def candidate(cls, image_shape: ImageShape, samples: int) -> CodecSettings | None:
        """Settings to compete with where the codec is chosen by measurement; None: it does not compete.

        samples: how many the first task has. The target, bytes or quality, is filled in.
        """
        del image_shape, samples
        return None

    def measured(
        self, x: NDArray[np.uint8], y: NDArray[np.int64], progress: Progress
    ) -> tuple[CodecSettings, tuple[Trial, ...]] | None:
        """Settings that the first task decides, and what was tried, the best first; None: it decides nothing.

        x: images (n, C, H, W); y: class numbers (n,).
        """
        del x, y, progress
        return None

    @classmethod
    def noise(cls, image_shape: ImageShape) -> float:
        """White noise for the training of classifiers, which hides the level that an image came from.

        None is needed if all levels distort images alike.
        """
        del image_shape
        return 0.0

    def describes(self, spec: CodecSpec) -> bool:
        """Whether a codec of this spec can have been made with these settings."""
        return spec.name == self.name


def masking_noise(image_shape: ImageShape) -> float:
    """For codecs whose levels have decoders of their own: results/bench/trap.md. In colour, not measured."""
    channels, height, width = image_shape
    return 0.0 if channels > 1 else 0.15 if height * width <= 256 else 0.3


class RateSettings(CodecSettings):
    """Settings of a codec whose rate can be chosen: by bytes or by quality."""

    bytes_per_sample: float | None = Field(None, gt=0, le=2**30)
    """Mean bytes of a sample in the file, labels and all else included. Set either this or `psnr`."""
    psnr: float | None = Field(None, gt=0, le=40)
    """Quality of a sample's first encoding in dB, 10 · log10(1 / mean squared error)."""

    @model_validator(mode="after")
    def _one_target(self) -> RateSettings:
        if (self.bytes_per_sample is None) == (self.psnr is None):
            raise ValueError(f"codec {self.name} needs either bytes_per_sample or psnr")
        return self

    def for_codes(self, left: float) -> RateSettings:
        """Settings for new codes of so many bytes per sample, kept within a third of what was asked for."""
        asked = self.bytes_per_sample
        given = None if asked is None else min(max(left, asked * 2 / 3), asked * 4 / 3)
        return self.model_copy(update={"bytes_per_sample": given})

    def excess(self, spent: float, error: float) -> float:
        """How far a code is too expensive (> 0) or too poor (< 0), relative to the target.

        spent: bytes per sample; error: mean squared error, pixels in [0, 1].
        """
        if self.psnr is not None:
            return 1 - error / 10 ** (-self.psnr / 10)
        assert self.bytes_per_sample is not None
        return spent / self.bytes_per_sample - 1


class AutoSettings(RateSettings):
    """The codec is chosen on the images of the first task: the cheapest that meets the target."""

    name: Literal["auto"] = "auto"
    """Choose by measurement."""

    @classmethod
    def for_images(cls, image_shape: ImageShape) -> AutoSettings:
        """30 dB; small grey images look as good with less."""
        channels, height, width = image_shape
        return cls(psnr=26.5 if channels == 1 and height * width <= 2048 else 30)


class CodecSpec(Frozen):
    """All that is needed to build a codec again, beside its weights. Stored in every level."""

    name: str

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width of the images it decodes to."""
        raise NotImplementedError


class NetworkSpec(CodecSpec):
    """A trained decoder, and the precision that weights are stored in."""

    decoder: AutoencoderSpec
    weights: Precision

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.decoder.image_shape


class Codes(Protocol):
    """The codes of one level, as the memory file stores them."""

    def __len__(self) -> int: ...

    def select(self, rows: Rows) -> Codes:
        """The codes of some samples only, in this order; the others' bytes are gone."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """What has to be stored; `Codec.restore_codes` reads it."""
        ...


class Encoded(NamedTuple):
    """Samples of a level that is merged into a larger one."""

    codec: Codec
    codes: Codes


_DECODED = 2**23  # values of images that are decoded at once, to be merged


@dataclass(frozen=True)
class FitInput:
    """The samples of one level, oldest first: those of merged levels, then new ones."""

    new: NDArray[np.uint8]
    """Images (m, C, H, W) that have never been encoded."""
    indices: NDArray[np.int64]
    """Sample indices (n,) of all samples, ascending."""
    groups: Sequence[int]
    """Lengths of consecutive runs with one history. A codec may reorder samples within a run only."""
    level: int
    top_level: int
    """The highest level in use, which has the largest model."""
    merged: Sequence[Encoded] = ()
    """The levels that are merged, whose codes can be kept or decoded."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height, width."""
        channels, height, width = self.new.shape[1:]
        return channels, height, width

    @cached_property
    def x(self) -> NDArray[np.uint8]:
        """All images (n, C, H, W); those of merged levels are decoded."""
        if not self.merged:
            return self.new
        shape = self.image_shape
        found = np.empty((len(self), *shape), np.uint8)
        some, at = max(_DECODED // math.prod(shape), 1), 0
        for codec, codes in self.merged:
            for start in range(0, len(codes), some):
                rows = np.arange(start, min(start + some, len(codes)))
                found[at : at + len(rows)] = codec.decode(codes, rows).numpy()
                at += len(rows)
        found[at:] = self.new
        return found

    @property
    def raw(self) -> NDArray[np.bool_]:
        """Which samples have never been encoded (n,)."""
        return np.arange(len(self)) >= len(self) - len(self.new)

    def size_ratio(self, smallest: float) -> float:
        """The size of this level's model relative to the largest: see `size_ratio`."""
        return size_ratio(self.level, self.top_level, smallest)


@dataclass(frozen=True)
class Fitted:
    """A codec and the codes of the samples it was fitted to: code j is that of input number `order[j]`."""

    codec: Codec
    codes: Codes
    order: NDArray[np.intp]
    kept: bool = False
    """Whether merged samples kept their codes: nothing was lost, and it was not another generation."""


class Codec(abc.ABC):
    """How images become codes and back. An instance has weights; levels with equal weights share one."""

    Settings: ClassVar[type[CodecSettings]]
    Spec: ClassVar[type[CodecSpec]]
    copies_codes: ClassVar[bool] = False
    """Whether levels merge without being decoded, so that few images are in memory at a time."""
    warm_starts: ClassVar[bool] = False
    """Whether a fit can start from the codec of another level. Then the largest level is fitted first."""

    spec: CodecSpec

    @classmethod
    @abc.abstractmethod
    def fit(cls, samples: FitInput, settings: Any, work: Work, starts: Sequence[Codec]) -> Fitted:
        """Fit a codec to samples and encode them.

        starts: codecs of other levels, the most similar level first; use the first that suits, or none.
        What is returned must decode exactly as it will after `to_bytes` and `from_bytes`.
        """

    @property
    def can_encode(self) -> bool:
        """Whether `encode` works: some codecs do not keep their encoder."""
        return True

    @abc.abstractmethod
    def encode(self, x: NDArray[np.uint8]) -> Codes:
        """Codes of images (n, C, H, W) with the weights as they are; n ≥ 1."""

    @abc.abstractmethod
    def decode(self, codes: Any, rows: Rows) -> Tensor:
        """Images (m, C, H, W) of some samples: uint8, on the CPU, decoded in blocks of bounded size."""

    def for_training(self) -> Codec:
        """The codec whose images a classifier learns most from: itself, unless `decode` retouches them.

        Restoration that brings images nearer to the originals may blur what distinguishes classes.
        """
        return self

    def check(self, codes: Any, rows: Rows) -> None:
        """Raise `Damaged` if some samples cannot be decoded; may leave out what cannot fail."""
        self.decode(codes, rows)

    def coarsen(self, codes: Any, factor: int = 2) -> Codes:
        """The same samples in fewer bytes, steps `factor` times as large, without decoding images.

        A codec whose codes take no bytes, or which has only one rate, returns them unchanged.
        """
        del factor
        same: Codes = codes
        return same

    @classmethod
    def effort(cls, spec: Mapping[str, Any], image_shape: ImageShape) -> int:
        """Bytes that an image claims because decoding it takes time: 7 for each microsecond, about.

        A memory file may claim a limited number of them, see `memory/claims.py`.
        spec: as it is in a file, not checked.
        """
        del spec, image_shape
        return 0

    def weights(self) -> dict[str, Tensor]:
        """Tensors that decoding needs and all levels with this codec share; empty if there are none."""
        return {}

    @classmethod
    @abc.abstractmethod
    def restore(cls, spec: Any, weights: Mapping[str, Tensor], name: str) -> Codec:
        """The codec that `weights()` came from; raises `Damaged`, calling it `name`, if they do not fit."""

    @abc.abstractmethod
    def restore_codes(
        self, tensors: Mapping[str, Tensor], indices: NDArray[np.int64], level_bytes: int, name: str
    ) -> Codes:
        """What `Codes.tensors` gave, for the samples with these indices; raises `Damaged` if it does not fit.

        level_bytes: size of the level's blob, weights included: a bound on what it can describe.
        """

    @classmethod
    @abc.abstractmethod
    def steps(cls, settings: Any, samples: int, *, warm: bool) -> int:
        """Optimiser steps, or other units of progress, that fitting this many samples takes.

        warm: whether there are other levels to start from.
        """

    def to_bytes(self) -> bytes:
        """Spec and weights as one blob; the same codec always gives the same bytes."""
        return blobs.pack(self.spec, self.weights())


def size_ratio(level: int, top_level: int, smallest: float = 1 / 8) -> float:
    """The size of model j relative to the largest, K; in the paper (7/8) · 2^(j - K) + 1/8."""
    return (1 - smallest) * 2.0 ** (level - top_level) + smallest
