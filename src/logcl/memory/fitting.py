"""The fits of one task as jobs for an engine: which may run side by side, and what each is given."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logcl.allocation import Plan, Slot
from logcl.core.progress import Progress
from logcl.memory.local_model import LocalModel, fit_steps
from logcl.memory.samples import Samples
from logcl.memory.settings import Settings
from logcl.memory.snapshot import Snapshot
from logcl.memory.staging import Staged
from logcl.nn.engines import Job


@dataclass(frozen=True)
class Fit:
    """What a job that fits a level gives back, from any process."""

    blob: bytes
    """The local model."""
    order: NDArray[np.intp]
    """See `LocalModel.fit`."""
    seconds: float


def _fit(
    slot: Slot,
    part: Samples,
    settings: Settings,
    top_level: int,
    start: bytes | None,
    progress: Progress,
) -> Fit:
    """`LocalModel.fit` as a job, from bytes to bytes: where it runs makes no difference."""
    began = time.monotonic()
    begin = None if start is None else LocalModel.from_bytes(start, "the largest level")
    model, order = LocalModel.fit(slot, part, settings, top_level, progress, begin)
    return Fit(model.to_bytes(), order, time.monotonic() - began)


def waves(
    parts: Mapping[Slot, Samples],
    plan: Plan,
    now: Snapshot,
    fitted: Mapping[Slot, Staged],
) -> Iterator[list[Job[Fit]]]:
    """The fits that are still to be made, in lists whose fits may run side by side.

    Every fit may begin where the largest model is; if that is among them, it comes before the others.
    """
    slots = [slot for slot in parts if slot not in fitted]
    if not slots:
        return
    top = (plan.keep + plan.train)[0]
    waves = [slots]
    if top in slots and now.settings.generator.codes == "quantised":
        waves = [[top], [slot for slot in slots if slot != top]]
    for wave in waves:
        largest = fitted[top].model if top in fitted else next(iter(now.levels), None)
        start = None if largest is None else largest.to_bytes()
        yield [
            Job(f"level {slot.level}", _fit, (slot, parts[slot], now.settings, top.level, start))
            for slot in wave
        ]


def expected_steps(parts: Mapping[Slot, Samples], now: Snapshot) -> dict[Slot, int]:
    """How many steps each fit takes, to estimate the time left."""
    first = next(iter(parts), None)
    return {
        slot: fit_steps(
            len(part), len(np.unique(part.y)), now.settings.generator,
            warm=bool(now.levels) or slot != first,
        )
        for slot, part in parts.items()
    }  # fmt: skip
