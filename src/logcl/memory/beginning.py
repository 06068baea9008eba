"""A new memory for the images of its first task: what is decided by them, before anything is committed."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logcl.codecs.base import AutoSettings
from logcl.core.inputs import as_labels, number_classes
from logcl.core.progress import Progress
from logcl.core.text import human_bytes
from logcl.memory.choosing import choose
from logcl.memory.manifest import Manifest
from logcl.memory.memory import Memory
from logcl.memory.settings import Settings


def begin(
    path: str | os.PathLike[str],
    settings: Settings,
    x: NDArray[np.uint8],
    labels: Sequence[Any] | NDArray[Any],
    progress: Progress | None = None,
) -> Memory:
    """A new memory, whose file its first task creates; what is open is measured on that task's images `x`.

    Of fewer images than a unit nothing is encoded yet, so the choice is left to the task that fills one.
    With a backbone, `x` are features.
    """
    if len(x) < settings.unit:
        return Memory.new(path, settings)
    numbers, _ = number_classes(as_labels(labels, len(x)), ())
    chosen, choice = choose(settings, x, numbers, progress)
    return Memory.new(path, chosen, choice=choice)


def codec_text(manifest: Manifest) -> str:
    """The codec that was chosen, with the bytes and quality to expect, in one line."""
    codec, choice = manifest.settings.codec, manifest.choice
    if choice is None or not choice.trials:
        waits = f"chosen when {manifest.settings.unit:,} samples are there"
        return f"codec {waits if isinstance(codec, AutoSettings) else f'{codec.name}, as asked'}"
    best, psnr = choice.trials[0], getattr(choice.asked, "psnr", None)
    raw = human_bytes(math.prod(manifest.settings.input_shape))
    if best.loss is not None:
        return f"{best}, measured by a probe; raw images {raw}"
    wanted = f"{psnr:g} dB" if psnr else "its bytes"
    return (
        f"codec {best.codec}, the best of {len(choice.trials)} for {wanted}: about "
        f"{human_bytes(best.bytes_per_sample)} per sample at {best.psnr:.1f} dB; raw {raw}"
    )
