"""The codec of a memory, chosen on the images of its first task: candidates are tried on some of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logcl.codecs import registry
from logcl.codecs.base import AutoSettings, CodecSettings, FitInput
from logcl.core.errors import BadSettings
from logcl.core.images import squared_errors
from logcl.core.progress import Advance, Progress, Silent
from logcl.core.settings import Frozen
from logcl.memory.settings import Settings
from logcl.memory.trials import Trial
from logcl.nn.images import similarity
from logcl.nn.training import Work, generator_for

_IMAGES, _FEW, _VALUES = 48, 24, 2**21  # images that candidates are tried on; values in all of them at most
_SHORT, _DEAR = 0.3, 1.1  # a candidate may miss the quality by this many dB, or the bytes by this factor
_USUAL = 26.0  # dB at which candidates are compared before
_LOWEST, _HIGHEST, _HALVINGS = 16.0, 40.0, 6  # dB between which a quality of a given similarity is searched


class Choice(Frozen):
    """Why a memory has its codec."""

    asked: AutoSettings
    """The settings that the codec was chosen by."""
    trials: tuple[Trial, ...]
    """All candidates, the best first."""


def choose(
    settings: Settings, x: NDArray[np.uint8], progress: Progress | None = None
) -> tuple[Settings, Choice | None]:
    """Settings with a codec in place of `auto`, and what was measured; as they are, with None, otherwise."""
    asked = settings.codec
    if not isinstance(asked, AutoSettings):
        return settings, None
    candidates = [
        found
        for name in registry.names()
        if (found := registry.find(name).Settings.candidate(settings.image_shape, len(x))) is not None
    ]
    if not candidates:
        raise BadSettings("no codec suits these images; choose one with --codec NAME")
    wanted: dict[str, Any] = {"psnr": asked.psnr, "bytes_per_sample": asked.bytes_per_sample}
    search = len(candidates) + _HALVINGS if asked.ssim is not None else 0
    with (progress or Silent()).track("choosing a codec", search + len(candidates)) as advance:

        def attempts(images: int) -> list[_Attempt]:
            """All candidates, the best first."""
            found = [_Attempt.of(candidate, wanted, _some(x, images), len(x), settings.seed, advance)
                     for candidate in candidates]  # fmt: skip
            return sorted(found, key=lambda attempt: _rank(attempt.trial, wanted))

        if asked.ssim is not None:
            wanted["psnr"] = _USUAL
            best = attempts(_FEW)[0].settings
            some = _some(x, _FEW)

            def similar(psnr: float) -> float:
                return _Attempt.of(best, {"psnr": psnr}, some, len(x), settings.seed, advance).trial.ssim

            wanted["psnr"] = _quality(asked.ssim, similar)
        ranked = attempts(_IMAGES)
    choice = Choice(asked=asked, trials=tuple(attempt.trial for attempt in ranked))
    return settings.model_copy(update={"codec": ranked[0].settings}), choice


class _Attempt(NamedTuple):
    settings: CodecSettings
    trial: Trial

    @staticmethod
    def of(
        candidate: CodecSettings,
        target: Mapping[str, Any],
        x: NDArray[np.uint8],
        samples: int,
        seed: int,
        advance: Advance,
    ) -> _Attempt:
        """Fit a candidate to some images; its weights count as if all `samples` shared them."""
        settings = type(candidate).model_validate({**candidate.model_dump(), **target})
        given = FitInput(x, np.arange(1, len(x) + 1), [len(x)], 0, 0)
        work = Work(generator_for(seed), Silent())
        fitted = registry.find(candidate.name).fit(given, settings, work, ())
        replayed = fitted.codec.decode(fitted.codes, np.arange(len(x))).numpy()
        error = float(squared_errors(x[fitted.order], replayed).mean())
        trial = Trial(
            codec=candidate.name,
            bytes_per_sample=_bytes(fitted.codes.tensors()) / len(x)
            + _bytes(fitted.codec.weights()) / samples,
            psnr=-10 * math.log10(max(error, 1e-6)),
            ssim=similarity(x[fitted.order], replayed),
        )
        advance()
        return _Attempt(settings, trial)


def _some(x: NDArray[np.uint8], images: int) -> NDArray[np.uint8]:
    """Images from all over the task."""
    count = max(min(images, len(x), _VALUES // math.prod(x.shape[1:])), 1)
    return np.ascontiguousarray(x[np.linspace(0, len(x) - 1, count).round().astype(int)])


def _quality(wanted: float, similar: Callable[[float], float]) -> float:
    """The lowest quality in dB, in tenths, at which images are as similar as wanted."""
    low, high = _LOWEST, _HIGHEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if similar(middle) >= wanted else (middle, high)
    return round(high, 1)


def _rank(trial: Trial, wanted: Mapping[str, Any]) -> tuple[float, float]:
    """Smaller is better: candidates that meet the target first, then by bytes, or by quality."""
    if wanted["psnr"] is not None:
        return max(wanted["psnr"] - trial.psnr - _SHORT, 0), trial.bytes_per_sample
    return max(trial.bytes_per_sample / wanted["bytes_per_sample"] - _DEAR, 0), -trial.psnr


def _bytes(tensors: dict[str, Any]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
