"""The codec of a memory, chosen on the images of its first task: candidates are tried on some of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logcl.codecs import registry
from logcl.codecs.base import AutoSettings, CodecSettings, FitInput
from logcl.codecs.registry import AnySettings
from logcl.core.errors import BadSettings
from logcl.core.images import squared_errors
from logcl.core.progress import Progress, Silent
from logcl.core.settings import Frozen
from logcl.core.trials import Trial
from logcl.memory.settings import Settings
from logcl.nn.training import Work, generator_for

_IMAGES, _VALUES = 48, 2**21  # images that candidates are tried on; values in all of them at most
_DECIBEL = 1.12  # factor on the bytes for another dB, typically
_GROWTH = 10  # how many times as many samples a memory is expected to hold, which share a codec's weights
_FAR = 1.0  # dB by which a candidate may miss the target; on few images none meets it exactly


class Choice(Frozen):
    """Why a memory has its codec, or its codec a rate."""

    asked: AnySettings
    """The settings that the codec was chosen by."""
    trials: tuple[Trial, ...]
    """All candidates, the best first."""


def choose(
    settings: Settings,
    x: NDArray[np.uint8],
    y: NDArray[np.int64],
    progress: Progress | None = None,
    samples: int | None = None,
) -> tuple[Settings, Choice | None]:
    """Settings with a codec in place of `auto`, or with a rate where it is open, and what was measured.

    Other settings are returned as they are, with None. x, y: images and class numbers of the first task;
    samples: how many that has, if these are only some of them.
    """
    asked, samples = settings.codec, samples or len(x)
    progress = progress or Silent()
    if (found := asked.measured(x, y, progress)) is not None:
        codec, trials = found
        return settings.model_copy(update={"codec": codec}), Choice(asked=asked, trials=trials)
    if not isinstance(asked, AutoSettings):
        return settings, None
    candidates = [
        suited
        for name in registry.names()
        if (suited := registry.find(name).Settings.candidate(settings.image_shape, samples)) is not None
    ]
    if not candidates:
        raise BadSettings("no codec suits these images; choose one with --codec NAME")
    target: dict[str, Any] = {"psnr": asked.psnr, "bytes_per_sample": asked.bytes_per_sample}
    some = _some(x)
    tried = []
    with progress.track("choosing a codec", len(candidates)) as advance:
        for candidate in candidates:
            complete = type(candidate).model_validate({**candidate.model_dump(), **target})
            tried.append((_trial(complete, some, _GROWTH * samples, settings.seed), complete))
            advance()
    tried.sort(key=lambda pair: _rank(pair[0], asked))
    choice = Choice(asked=asked, trials=tuple(trial for trial, _ in tried))
    return settings.model_copy(update={"codec": tried[0][1]}), choice


def _trial(settings: CodecSettings, x: NDArray[np.uint8], samples: int, seed: int) -> Trial:
    """What a codec makes of some images; its weights count as if `samples` shared them."""
    given = FitInput(x, np.arange(1, len(x) + 1), [len(x)], 0, 0)
    fitted = registry.find(settings.name).fit(given, settings, Work(generator_for(seed), Silent()), ())
    replayed = fitted.codec.decode(fitted.codes, np.arange(len(x))).numpy()
    error = float(squared_errors(x[fitted.order], replayed).mean())
    return Trial(
        codec=settings.name,
        bytes_per_sample=_bytes(fitted.codes.tensors()) / len(x) + _bytes(fitted.codec.weights()) / samples,
        psnr=-10 * math.log10(max(error, 1e-6)),
    )


def _some(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images from all over the task."""
    count = max(min(_IMAGES, len(x), _VALUES // math.prod(x.shape[1:])), 1)
    return np.ascontiguousarray(x[np.linspace(0, len(x) - 1, count).round().astype(int)])


def _rank(trial: Trial, asked: AutoSettings) -> tuple[float, float]:
    """Smaller is better: those that meet the target first, then by what they would take exactly on target."""
    if asked.psnr is not None:
        missing = asked.psnr - trial.psnr
        return max(missing - _FAR, 0), trial.bytes_per_sample * _DECIBEL**missing
    assert asked.bytes_per_sample is not None
    excess = math.log(trial.bytes_per_sample / asked.bytes_per_sample, _DECIBEL)
    return max(excess - _FAR, 0), excess - trial.psnr


def _bytes(tensors: dict[str, Any]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
