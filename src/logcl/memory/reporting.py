"""Reports of a task after its commit: whatever fails here is a warning, because the task is already in."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception_only

from logcl.allocation import Plan
from logcl.codecs.base import RateSettings
from logcl.core.descriptions import description
from logcl.core.errors import NotReported, Poor
from logcl.core.progress import Callback, Moment
from logcl.core.text import printable
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.fitting import Fit
from logcl.memory.ledger import Entry
from logcl.memory.samples import LevelHistory
from logcl.memory.settings import Settings

_NOTICEABLE = 0.5  # dB


def announce(
    file: MemoryFile, observers: Sequence[Callback], plan: Plan, entry: Entry, seconds: float
) -> None:
    """Send the `Moment` of a committed task to all observers."""
    with _warning_only(file.path):
        values = {
            "absorbed": entry.samples, "bytes": file.nbytes(), "levels": len(plan.keep + plan.train),
            "samples_trained": sum(slot.samples for slot in plan.train), "seconds": seconds,
        }  # fmt: skip
        for observer in observers:
            with _warning_only(file.path):
                observer(Moment("memory", entry.stop, entry.stop, values))


def warn_if_poor(path: Path, fits: Collection[Fit], settings: Settings) -> None:
    """Warn, before the commit, if new samples are replayed noticeably worse than asked for."""
    codec = settings.codec
    if not isinstance(codec, RateSettings) or codec.psnr is None:
        return
    histories = [LevelHistory.of(description(fit.level, str(path)), str(path)) for fit in fits]
    # Runs with a single error were encoded once, in this task or with the same codec in an earlier one.
    once = [run for level in histories for run in level.runs if len(run.errors) == 1]
    if not once:
        return
    error = sum(run.count * run.errors[0] for run in once) / sum(run.count for run in once)
    reached = -10 * math.log10(max(error, 1e-9))
    if reached < codec.psnr - _NOTICEABLE:
        warnings.warn(
            f"{path}: images are replayed with {reached:.1f} dB, although {codec.psnr:g} dB were asked for: "
            f"codec {codec.name} does no better on them; a new memory without --codec chooses one that does",
            Poor,
            stacklevel=3,
        )


@contextmanager
def _warning_only(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever an observer raises
        problem = printable(" ".join(format_exception_only(error)[-1].split()))
        warnings.warn(
            f"{path} holds this task, but reporting it failed ({problem}); do not absorb it again",
            NotReported,
            stacklevel=6,
        )
