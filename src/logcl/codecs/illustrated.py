"""Features with a small picture of each sample, for memories with a backbone that have something to show.

features (D) ┬ thumbnail (3 · side²)      one sample, its bytes side by side
             │        │
          features  pyramid
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from logcl.codecs.base import Codec, CodecSpec, Encoded, FitInput, Fitted, Rows
from logcl.codecs.features.codec import Features, FeaturesSettings, FeaturesSpec
from logcl.codecs.pyramid.codec import Pyramid, PyramidSettings, PyramidSpec
from logcl.codecs.pyramid.codes import PyramidCodes
from logcl.codecs.quantised import QuantisedCodes
from logcl.core.progress import Progress
from logcl.core.settings import ImageShape
from logcl.core.trials import Trial
from logcl.nn.training import Work

_PARTS = ("features", "thumbnails")


class IllustratedSettings(FeaturesSettings):
    """Those of features, and the size and quality of thumbnails."""

    name: Literal["illustrated"] = "illustrated"  # type: ignore[assignment]
    """Which codec."""
    side: int = Field(32, ge=4, le=64)
    """Height and width of thumbnails."""
    thumbnail_psnr: float = Field(26, gt=0, le=40)
    """Their quality in dB."""

    def measured(
        self, x: NDArray[np.uint8], y: NDArray[np.int64], progress: Progress
    ) -> tuple[FeaturesSettings, tuple[Trial, ...]] | None:
        """The step, by the features alone."""
        return super().measured(_split(x, self.side)[0], y, progress)


class IllustratedSpec(CodecSpec):
    """The specs of both."""

    name: Literal["illustrated"] = "illustrated"
    image_shape: ImageShape
    features: FeaturesSpec
    thumbnails: PyramidSpec

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width of samples: features, then pixels."""
        return self.image_shape

    @model_validator(mode="after")
    def _complete(self) -> IllustratedSpec:
        channels, height, width = self.thumbnails.shape
        values = math.prod(self.features.shape) + math.prod(self.thumbnails.shape)
        if channels != 3 or height != width or values != math.prod(self.image_shape):
            raise ValueError("features and thumbnails are not what samples consist of")
        return self


@dataclass(frozen=True)
class IllustratedCodes:
    """The codes of both, sample by sample."""

    features: QuantisedCodes
    thumbnails: PyramidCodes

    def __len__(self) -> int:
        return len(self.features)

    def select(self, rows: Rows) -> IllustratedCodes:
        """Those of some samples."""
        return IllustratedCodes(self.features.select(rows), self.thumbnails.select(rows))

    def tensors(self) -> dict[str, Tensor]:
        """Those of both."""
        return _joined({part: getattr(self, part).tensors() for part in _PARTS})


class Illustrated(Codec):
    """Two codecs side by side."""

    Settings = IllustratedSettings
    Spec = IllustratedSpec
    warm_starts = True
    spec: IllustratedSpec

    def __init__(self, spec: IllustratedSpec, features: Features, thumbnails: Pyramid) -> None:
        self.spec, self.features, self.thumbnails = spec, features, thumbnails

    @classmethod
    def fit(
        cls, samples: FitInput, settings: IllustratedSettings, work: Work, starts: Sequence[Codec] = ()
    ) -> Fitted:
        """Fit both; thumbnails may be reordered, and features follow them."""
        mine = [start for start in starts if isinstance(start, Illustrated)]
        small = Pyramid.fit(
            _part(samples, 1, settings.side), PyramidSettings(psnr=settings.thumbnail_psnr),
            work.part("thumbnails"), [start.thumbnails for start in mine],
        )  # fmt: skip
        asked = settings
        if settings.bytes_per_sample is not None:
            taken = sum(tensor.nbytes for tensor in small.codes.tensors().values()) / len(samples)
            left = max(settings.bytes_per_sample - taken, settings.bytes_per_sample / 8)
            asked = settings.model_copy(update={"bytes_per_sample": left})
        fitted = Features.fit(
            _part(samples, 0, settings.side), asked, work.part("features"), [start.features for start in mine]
        )
        codes = fitted.codes
        if not np.array_equal(small.order, np.arange(len(samples))):
            codes = codes.select(small.order)
        # What the two always return, for the type checker.
        assert isinstance(fitted.codec, Features)
        assert isinstance(codes, QuantisedCodes)
        assert isinstance(small.codec, Pyramid)
        assert isinstance(small.codes, PyramidCodes)
        spec = IllustratedSpec(
            image_shape=samples.image_shape, features=fitted.codec.spec, thumbnails=small.codec.spec
        )
        codec = cls(spec, fitted.codec, small.codec)
        return Fitted(codec, IllustratedCodes(codes, small.codes), small.order, fitted.kept and small.kept)

    def encode(self, x: NDArray[np.uint8]) -> IllustratedCodes:
        """Codes of samples (n, 1, 1, values)."""
        features, thumbnails = _split(x, self.spec.thumbnails.shape[1])
        return IllustratedCodes(self.features.encode(features), self.thumbnails.encode(thumbnails))

    def decode(self, codes: IllustratedCodes, rows: Rows) -> Tensor:
        """Samples (m, 1, 1, values)."""
        parts = self.features.decode(codes.features, rows), self.thumbnails.decode(codes.thumbnails, rows)
        return torch.cat([part.flatten(1) for part in parts], dim=1).reshape(-1, *self.spec.shape)

    def check(self, codes: IllustratedCodes, rows: Rows) -> None:
        """Check both."""
        self.features.check(codes.features, rows)
        self.thumbnails.check(codes.thumbnails, rows)

    def coarsen(self, codes: IllustratedCodes, factor: int = 2) -> IllustratedCodes:
        """Both in larger steps."""
        features = self.features.coarsen(codes.features, factor)
        return IllustratedCodes(features, self.thumbnails.coarsen(codes.thumbnails, factor))

    @classmethod
    def effort(cls, spec: Mapping[str, Any], image_shape: ImageShape) -> int:
        """That of thumbnails, whatever a forged spec says of their size."""
        del spec
        side = min(math.isqrt(math.prod(image_shape) // 3), 64)
        return Pyramid.effort({}, (3, side, side))

    def weights(self) -> dict[str, Tensor]:
        """Those of both."""
        return _joined({part: getattr(self, part).weights() for part in _PARTS})

    @classmethod
    def restore(cls, spec: IllustratedSpec, weights: Mapping[str, Tensor], name: str) -> Illustrated:
        """Both, each from its own weights."""
        features = Features.restore(spec.features, _of("features", weights), name)
        return cls(spec, features, Pyramid.restore(spec.thumbnails, _of("thumbnails", weights), name))

    def restore_codes(
        self, tensors: Mapping[str, Tensor], indices: NDArray[np.int64], level_bytes: int, name: str
    ) -> IllustratedCodes:
        """The codes of both."""
        features, thumbnails = (_of(part, tensors) for part in _PARTS)
        return IllustratedCodes(
            self.features.restore_codes(features, indices, level_bytes, name),
            self.thumbnails.restore_codes(thumbnails, indices, level_bytes, name),
        )

    @classmethod
    def steps(cls, settings: IllustratedSettings, samples: int, *, warm: bool) -> int:
        """Those of both."""
        small = PyramidSettings(psnr=settings.thumbnail_psnr)
        return Features.steps(settings, samples, warm=warm) + Pyramid.steps(small, samples, warm=warm)


def _split(x: NDArray[np.uint8], side: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Features (n, 1, 1, D) and thumbnails (n, 3, side, side) of samples."""
    flat = x.reshape(len(x), math.prod(x.shape[1:]))
    at = flat.shape[1] - 3 * side * side
    return flat[:, None, None, :at], np.ascontiguousarray(flat[:, at:]).reshape(len(x), 3, side, side)


def _part(samples: FitInput, which: int, side: int) -> FitInput:
    """The samples as one of the codecs sees them."""
    merged = []
    for codec, codes in samples.merged:
        if not (isinstance(codec, Illustrated) and isinstance(codes, IllustratedCodes)):
            return replace(samples, new=_split(samples.x, side)[which], merged=())  # of another codec
        merged.append(Encoded(getattr(codec, _PARTS[which]), getattr(codes, _PARTS[which])))
    return replace(samples, new=_split(samples.new, side)[which], merged=merged)


def _joined(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{part}.{key}": value for part, tensors in parts.items() for key, value in tensors.items()}


def _of(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(f"{part}."): v for k, v in tensors.items() if k.startswith(f"{part}.")}
