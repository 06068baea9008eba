"""Rounded features, for memories with a backbone: nothing is trained, and levels merge without loss.

    byte ── - 128 ── / step ── round ── symbol ── entropy coder

The bytes are those of `core.features`, so a step is finer for small features than for large ones. Most
features of most networks are near zero and become the symbol 0. What a 0 stands for is measured, for each
feature: after a rectifier it is a little more than nothing, and a classifier that learns from rounded
features would otherwise be misled by exact ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from logcl.codecs.base import Codec, CodecSpec, Encoded, FitInput, Fitted, RateSettings
from logcl.codecs.coding import entropy
from logcl.codecs.features.rounding import STEP, rounded
from logcl.codecs.quantised import FINENESS, QuantisedCodec, QuantisedCodes, joined
from logcl.core.errors import Damaged
from logcl.core.features import ZERO
from logcl.core.images import rows_at_once, squared_errors
from logcl.core.progress import Progress
from logcl.core.settings import ImageShape
from logcl.core.trials import Trial
from logcl.nn.training import Work

_FINEST, _COARSEST, _TRIALS = 1.0, 256.0, 12  # steps; how many are tried
_TOLERANCE = 0.1  # excess of bytes up to which the step of another level is kept
_MOST, _CALIBRATED = 2048, 2**22  # samples that the step is chosen on, and values in all of them


class FeaturesSettings(RateSettings):
    """The rate: a step, or what it has to achieve."""

    name: Literal["features"] = "features"
    """Which codec."""
    step: float | None = Field(None, ge=_FINEST, le=_COARSEST)
    """Step of rounding, in steps of the bytes. If neither this nor another target is set, the step is the
    coarsest that costs a probe on the first task no more than a point of accuracy."""

    @model_validator(mode="after")
    def _one_target(self) -> FeaturesSettings:
        if sum(target is not None for target in (self.step, self.bytes_per_sample, self.psnr)) > 1:
            raise ValueError("codec features takes one of step, bytes_per_sample and psnr")
        return self

    @classmethod
    def possible(cls, image_shape: ImageShape) -> bool:
        """Only features, which are one row."""
        return image_shape[:2] == (1, 1)

    def measured(
        self, x: NDArray[np.uint8], y: NDArray[np.int64], progress: Progress
    ) -> tuple[FeaturesSettings, tuple[Trial, ...]] | None:
        """With the step that a probe chooses, if there is neither a step nor another target."""
        if self.step is not None or self.bytes_per_sample is not None or self.psnr is not None:
            return None
        from logcl.codecs.features.probe import choose_step  # scikit-learn is slow to import

        step, trials = choose_step(x, y, progress)
        return self.model_copy(update={"step": step}), trials


class FeaturesSpec(CodecSpec):
    """The step, beside what zeros stand for."""

    name: Literal["features"] = "features"
    image_shape: ImageShape
    step: float = Field(ge=_FINEST, le=_COARSEST)

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.image_shape


class Features(QuantisedCodec):
    """A step, and what a 0 of each value stands for."""

    Settings = FeaturesSettings
    Spec = FeaturesSpec
    warm_starts = True
    spec: FeaturesSpec

    def __init__(self, spec: FeaturesSpec, zeros: NDArray[np.int8]) -> None:
        """zeros: bytes above 128, for each value (values,)."""
        self.spec, self.zeros = spec, zeros

    @classmethod
    def fit(
        cls, samples: FitInput, settings: FeaturesSettings, work: Work, starts: Sequence[Codec] = ()
    ) -> Fitted:
        """Choose the step, or keep that of another level, and round; merged levels keep their symbols.

        Only where the bytes asked for are missed by far is there another step, and then all are rounded anew.
        """
        alike = [*(merged.codec for merged in samples.merged[::-1]), *starts]
        known = next((codec for codec in alike if isinstance(codec, Features)), None)
        with work.counting(cls.steps(settings, len(samples), warm=known is not None)) as made:
            step = settings.step
            if step is None and len(samples.new):
                step = _step(samples.new, settings, None if known is None else known.spec.step, made)
            codec = known
            if known is None or step not in (None, known.spec.step):
                codec = cls._fitted(samples.x, step or STEP)
            assert codec is not None
            codes = [kept for part in samples.merged if (kept := _beside(codec, part)) is not None]
            same = len(codes) == len(samples.merged)
            if not same:
                codes = [codec.encode(samples.x[: len(samples) - len(samples.new)])]
            if len(samples.new):
                codes.append(codec.encode(samples.new, made))
        every = codes[0] if len(codes) == 1 else joined(codes)
        return Fitted(codec, every, np.arange(len(samples)), same and bool(samples.merged))

    @classmethod
    def _fitted(cls, x: NDArray[np.uint8], step: float) -> Features:
        """With the mean of what becomes 0, for each value."""
        shape: ImageShape = (x.shape[1], x.shape[2], x.shape[3])
        some = x[:: max(len(x) // _MOST, 1)]
        gone = rounded(some, step) == 0
        values = some.reshape(len(some), -1).astype(np.float32) - ZERO
        means = (values * gone).sum(axis=0) / np.maximum(gone.sum(axis=0), 1)
        return cls(FeaturesSpec(image_shape=shape, step=step), np.rint(means).astype(np.int8))

    def encode(self, x: NDArray[np.uint8], made: Callable[[int], None] | None = None) -> QuantisedCodes:
        """Round the bytes (n, C, H, W); `made` counts the samples that are coded."""
        symbols = np.empty((len(x), self.length), np.int16)
        rows = rows_at_once(self.spec.shape)
        for start in range(0, len(x), rows):
            symbols[start : start + rows] = rounded(x[start : start + rows], self.spec.step)
        return QuantisedCodes(entropy.encode(symbols, made))

    @property
    def length(self) -> int:
        """Values of a sample."""
        return math.prod(self.spec.shape)

    def images(self, inputs: Tensor) -> Tensor:
        """Quarters of symbols (n, values) → the bytes (n, C, H, W) as numbers in [0, 1]."""
        zeros = torch.from_numpy(self.zeros).to(inputs)
        values = torch.where(inputs == 0, zeros, inputs * (FINENESS * self.spec.step))
        values = values.round_().add_(ZERO).clamp_(0, 255)
        return values.div_(255).reshape(-1, *self.spec.shape)

    def weights(self) -> dict[str, Tensor]:
        """What zeros stand for."""
        return {"zeros": torch.from_numpy(self.zeros)}

    @classmethod
    def restore(cls, spec: FeaturesSpec, weights: Mapping[str, Tensor], name: str) -> Features:
        """One number for each value."""
        zeros = weights.get("zeros")
        if (
            len(weights) != 1
            or zeros is None
            or (zeros.dtype, zeros.shape) != (torch.int8, (math.prod(spec.shape),))
        ):
            raise Damaged(f"{name} does not say what zeros stand for; `logcl verify` says what is intact")
        return cls(spec, zeros.numpy())

    @classmethod
    def steps(cls, settings: FeaturesSettings, samples: int, *, warm: bool) -> int:
        """Samples that are coded, or rounded on trial to choose a step."""
        open_rate = settings.psnr is None and settings.bytes_per_sample is None
        trials = 0 if open_rate else 1 if warm else _TRIALS
        return samples + trials * min(samples, _MOST)


def _beside(codec: Features, merged: Encoded) -> QuantisedCodes | None:
    """The codes of a merged level if they can stand beside new ones."""
    codes = merged.codes
    same = isinstance(merged.codec, Features) and merged.codec.to_bytes() == codec.to_bytes()
    return codes if same and isinstance(codes, QuantisedCodes) and codes.factor == 1 else None


def _step(
    x: NDArray[np.uint8], settings: FeaturesSettings, kept: float | None, made: Callable[[int], None]
) -> float:
    """The step that meets the target on these samples, or the `kept` one if that comes near it."""
    if settings.psnr is None and settings.bytes_per_sample is None:
        return kept or STEP  # nothing was measured
    some = x[:: max(len(x) // min(_MOST, max(_CALIBRATED // math.prod(x.shape[1:]), 1)), 1)]

    def excess(step: float) -> float:
        symbols = rounded(some, step)
        made(len(some))
        if settings.psnr is None:
            return settings.excess(entropy.mean_bytes(symbols), 0)
        values = np.rint(symbols * np.float32(step)) + ZERO
        decoded = values.clip(0, 255).astype(np.uint8).reshape(some.shape)
        return settings.excess(0, float(squared_errors(some, decoded).mean()))

    if kept is not None and abs(excess(kept)) <= _TOLERANCE:
        return kept
    finest, coarsest = _FINEST, _COARSEST
    for _ in range(_TRIALS - 1):
        middle = math.sqrt(finest * coarsest)
        finest, coarsest = (middle, coarsest) if excess(middle) > 0 else (finest, middle)
    return float(np.float16(coarsest if settings.psnr is None else finest))
