"""Reports of a task after its commit: whatever fails here is a warning, because the task is already in."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception_only

from logcl.allocation import Plan
from logcl.core.errors import NotReported
from logcl.core.progress import Callback, Moment
from logcl.core.text import printable
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.ledger import Entry


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
