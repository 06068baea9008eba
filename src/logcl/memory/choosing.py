"""What a memory chooses on the images of its first task: its codec, and whether they may be mirrored.

Candidates for the codec are tried on some of them.
"""

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
from logcl.core.trials import MirrorTrial, Trial
from logcl.memory import mirroring
from logcl.memory.settings import Settings
from logcl.nn.training import Work, generator_for

_IMAGES, _VALUES = 48, 2**21  # images that candidates are tried on; values in all of them at most
_DECIBEL = 1.12  # factor on the bytes for another dB, typically
_GROWTH = 10  # how many times as many samples a memory is expected to hold, which share a codec's weights
_FAR = 1.0  # dB by which a candidate may miss the target; on few images none meets it exactly


class Choice(Frozen):
    """Why a memory has its codec, or its codec a rate, and why its images are mirrored in training or not."""

    asked: AnySettings | None = None
    """The settings that the codec was chosen by; None if it was given."""
    trials: tuple[Trial, ...] = ()
    """All candidates, the best first."""
    mirror: MirrorTrial | None = None
    """None if it was given whether images are mirrored."""


def choose(
    settings: Settings,
    x: NDArray[np.uint8],
    y: NDArray[np.int64],
    progress: Progress | None = None,
    samples: int | None = None,
) -> tuple[Settings, Choice | None]:
    """Settings with what was measured in place of `auto`, or with a rate where it is open; and the choice.

    Other settings are returned as they are, with None. x, y: images and class numbers of the first task;
    samples: how many that has, if these are only some of them.
    """
    settings, mirror = choose_mirror(settings, x, y)
    asked = settings.codec
    chosen = _choose_codec(settings, x, y, progress or Silent(), samples or len(x))
    if chosen is None:
        return settings, None if mirror is None else Choice(mirror=mirror)
    codec, trials = chosen
    return settings.model_copy(update={"codec": codec}), Choice(asked=asked, trials=trials, mirror=mirror)


def choose_mirror(
    settings: Settings, x: NDArray[np.uint8], y: NDArray[np.int64]
) -> tuple[Settings, MirrorTrial | None]:
    """Settings that say whether images are mirrored in training, and what was measured, if they did not."""
    if settings.classifier.mirror != "auto":
        return settings, None
    trial = mirroring.measure(x, y)
    classifier = settings.classifier.model_copy(update={"mirror": trial.mirror})
    return settings.model_copy(update={"classifier": classifier}), trial


def _choose_codec(
    settings: Settings, x: NDArray[np.uint8], y: NDArray[np.int64], progress: Progress, samples: int
) -> tuple[CodecSettings, tuple[Trial, ...]] | None:
    """The best codec for so many samples and all trials; None if the codec is given."""
    asked = settings.codec
    if (found := asked.measured(x, y, progress)) is not None:
        return found
    if not isinstance(asked, AutoSettings):
        return None
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
    return tried[0][1], tuple(trial for trial, _ in tried)


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
