"""The fits of one task as jobs for an engine: which can run concurrently, and what each of them starts from.

A `Fit` is bytes all the way: an engine returns it, it is staged as it is, and committed as it is.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logcl.allocation import Plan, Slot
from logcl.codecs import registry
from logcl.codecs.base import RateSettings
from logcl.codecs.coding.bits import integer_bits
from logcl.core.progress import CountedProgress, Progress
from logcl.memory.local_model import LocalModel, fit_steps
from logcl.memory.samples import Samples
from logcl.memory.settings import Settings
from logcl.memory.snapshot import Snapshot
from logcl.nn.engines import Job

_FILE, _LEVEL = 8000, 800  # bytes of a file beside its levels, and of a level beside codes and labels, about


@dataclass(frozen=True)
class Fit:
    """A fitted level, as the file stores it."""

    slot: Slot
    level: bytes
    """The blob of the level."""
    codec: bytes
    """The blob of its codec."""
    has_weights: bool
    """Whether the codec has weights, which are a separate part of the file."""
    order: NDArray[np.intp]
    """See `LocalModel.fit`."""
    seconds: float = 0.0

    @staticmethod
    def of(model: LocalModel, order: NDArray[np.intp], seconds: float = 0.0) -> Fit:
        """The fit that made this model."""
        codec = model.codec.to_bytes()
        return Fit(model.slot, model.to_bytes(), codec, bool(model.codec.weights()), order, seconds)

    @property
    def parts(self) -> dict[str, bytes]:
        """The parts of the memory file that it takes."""
        weights = {weights_part(hashlib.sha256(self.codec).hexdigest()): self.codec}
        return {level_part(self.slot): self.level, **(weights if self.has_weights else {})}

    def model(self, name: str) -> LocalModel:
        """The local model; raises `Damaged`, calling it `name`, if the bytes do not fit together."""
        codec = registry.from_bytes(self.codec, name)
        return LocalModel.from_bytes(self.level, {hashlib.sha256(self.codec).hexdigest(): codec}, name)


@dataclass(frozen=True)
class Part:
    """What a level is fitted to: the levels that merge into it, oldest first, and new samples."""

    merged: tuple[LocalModel, ...]
    new: Samples

    def __len__(self) -> int:
        return sum(map(len, self.merged)) + len(self.new)

    def class_counts(self, classes: int) -> NDArray[np.int64]:
        """Samples of each class, at least this many; a labeller's classes count once each."""
        held = [
            level.about.classes if level.about.labeller else level.class_numbers() for level in self.merged
        ]
        return np.bincount(np.concatenate([*held, self.new.y]), minlength=classes)


def parts(plan: Plan, now: Snapshot, new: Samples) -> dict[Slot, Part]:
    """What each level of the plan is fitted to; `new`: the samples after those of all levels.

    A retired level is merged as a whole: the first level to be fitted has room for all of them.
    """
    found = {}
    for slot in plan.train:
        merged = tuple(
            level for level in now.levels if level.slot in plan.retire and level.slot.start >= slot.start
            and level.slot.stop <= slot.stop
        )  # fmt: skip
        part = Part(merged, new.between(slot.start, slot.stop))
        if len(part):
            found[slot] = part
    return found


def level_part(slot: Slot) -> str:
    """The part of the file that holds a level."""
    return f"level-{slot.level}"


def weights_part(digest: str) -> str:
    """The part of the file that holds the codec weights with this SHA-256."""
    return f"weights-{digest[:16]}"


@contextmanager
def counting(
    progress: Progress, incoming: int, parts: Mapping[Slot, Part], now: Snapshot, done: Collection[Slot]
) -> Iterator[Progress]:
    """A progress on which the steps of all fits that are not `done` move one bar."""
    first = next(iter(parts), None)
    steps = {
        slot: fit_steps(
            len(part), int(np.count_nonzero(part.class_counts(0))), now.settings,
            warm=bool(now.levels) or slot != first,
        )
        for slot, part in parts.items()
        if slot not in done
    }  # fmt: skip
    with progress.track(f"absorbing {incoming:,} samples", max(sum(steps.values()), 1)) as count:
        yield CountedProgress(progress, count)


def _fit(
    slot: Slot,
    part: Part,
    settings: Settings,
    top_level: int,
    starts: tuple[bytes, ...],
    progress: Progress,
) -> Fit:
    """`LocalModel.fit` as a job, from bytes to bytes: the result does not depend on where it runs."""
    began = time.monotonic()
    codecs = [registry.from_bytes(start, "the codec of another level") for start in starts]
    model, order = LocalModel.fit(slot, part.new, settings, top_level, progress, codecs, part.merged)
    return Fit.of(model, order, time.monotonic() - began)


def waves(
    parts: Mapping[Slot, Part], plan: Plan, now: Snapshot, fits: Mapping[Slot, Fit]
) -> Iterator[list[Job[Fit]]]:
    """The fits still to be made, in lists whose fits can run concurrently.

    If fits can start from another level and the largest level is among them, it is fitted first.
    """
    slots = [slot for slot in parts if slot not in fits]
    if not slots:
        return
    top, settings = (plan.keep + plan.train)[0], _for_codes(plan, now)
    waves = [slots]
    if top in slots and registry.find(now.settings.codec.name).warm_starts:
        waves = [[top], [slot for slot in slots if slot != top]]
    for wave in waves:
        first = (fits[top].codec,) if top in fits else ()
        yield [
            Job(
                f"level {slot.level}", _fit,
                (slot, parts[slot], settings, top.level, first or _starts(parts[slot], plan, now)),
            )
            for slot in wave
        ]  # fmt: skip


def _for_codes(plan: Plan, now: Snapshot) -> Settings:
    """Settings for new codes: what was asked for per sample is for all that is in the file."""
    settings, codec = now.settings, now.settings.codec
    if not isinstance(codec, RateSettings) or codec.bytes_per_sample is None:
        return settings
    levels = plan.keep + plan.train
    samples, encoded = sum(slot.samples for slot in levels), sum(map(len, now.levels))
    labels = integer_bits(max(len(now.classes) - 1, 0)) / 8
    held = [level.codes.tensors() for level in now.levels]
    held += [level.codec.weights() for level in now.levels[:1]]  # of other levels they are mostly the same
    spent = sum(tensor.nbytes for tensors in held for tensor in tensors.values())
    left = (codec.bytes_per_sample - labels) * samples - _FILE - _LEVEL * len(levels) - spent
    return settings.model_copy(update={"codec": codec.for_codes(left / max(samples - encoded, 1))})


def _starts(part: Part, plan: Plan, now: Snapshot) -> tuple[bytes, ...]:
    """Codecs that a fit may start from, the most similar level first; of equally similar ones the larger.

    A level resembles the part as far as it holds the same classes. Levels that stay are offered or, when all
    of them are merged, the largest.
    """
    kept = [level for level in now.levels if level.slot in plan.keep] or list(now.levels[:1])
    counts = part.class_counts(len(now.classes))
    kept.sort(key=lambda level: -int(counts[list(level.about.classes)].sum()))
    return tuple(level.codec.to_bytes() for level in kept)
