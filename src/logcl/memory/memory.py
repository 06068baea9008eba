"""The memory: every sample ever seen, in as many local models as there are 1-bits in the number of units.

memory = Memory.open("pets.logcl", image_shape=(3, 32, 32))
memory.absorb(images, labels)
for x, y in memory.replay(batch_size=128): ...
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl import allocation
from logcl.core.errors import BadInput, BadSettings, Busy, Damaged, LogCLError, NotAMemory, NotTrained
from logcl.core.inputs import Label, as_labels, as_pixels, number_classes
from logcl.core.progress import Callback, CountedProgress, Moment, Progress, WithCallbacks
from logcl.core.settings import ImageShape, parse_as
from logcl.core.sharding import Shard
from logcl.memory import buffer, fitting, samples, staging
from logcl.memory.file.header import Header
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.local_model import LocalModel
from logcl.memory.manifest import Fields
from logcl.memory.presets import preset as preset_settings
from logcl.memory.settings import Settings, override
from logcl.memory.snapshot import ReplayDataset, ReplayStream, Snapshot, inconsistency
from logcl.nn.engines import Engine, Local

_WORTH_STAGING = 0.5
"""Seconds of training that are kept until the commit; a sync takes some hundredths of one."""


@dataclass(frozen=True)
class Absorbed:
    """What one task did to the memory."""

    plan: allocation.Plan
    orders: Mapping[allocation.Slot, NDArray[np.intp]]
    """For each trained slot: position j holds input number order[j] of that fit (see LocalModel.fit)."""
    resumed: tuple[allocation.Slot, ...] = ()
    """Trained slots that were fitted already when this task was interrupted before."""


class Memory:
    """One memory file. Reading never blocks writing for long; a second writer is refused."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Use `Memory.open`; this only keeps the path."""
        self.file = MemoryFile(path)
        self._parts: dict[str, LocalModel | tuple[int, samples.Samples]] = {}

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        image_shape: ImageShape | None = None,
        *,
        preset: str | None = None,
        dataset: str | None = None,
        seed: int | None = None,
        unit: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Memory:
        """Open a memory, or create it if there is none at `path`.

        Creating needs `image_shape` (channels, height, width). The other arguments choose settings, which
        are kept in the file: `preset` is fast, paper-cpu or paper, `settings` maps dotted names to values,
        e.g. {"generator.epochs": 50}. For a memory that exists they may be left out, and must agree if given.
        `dataset` (mnist, omniglot, cifar100) says whose hyperparameters a new memory of preset paper has.
        """
        memory = Memory(path)
        changes = dict(settings or {})
        changes |= {k: v for k, v in (("seed", seed), ("unit", unit)) if v is not None}
        if memory.file.exists():
            memory._check_agrees(image_shape, preset, changes)
            return memory
        if image_shape is None:
            raise NotAMemory(
                f"{path} does not exist; `logcl absorb` creates it, as does Memory.open with "
                f"image_shape=(channels, height, width)"
            )
        chosen = preset_settings(preset or "fast", image_shape, dataset)
        return Memory.create(path, override(chosen, changes))

    @staticmethod
    def create(
        path: str | os.PathLike[str], settings: Settings, notes: Mapping[str, str] | None = None
    ) -> Memory:
        """A new, empty memory at a path where nothing is yet; `notes` are kept in it as they are."""
        memory = Memory(path)
        fields = parse_as(Fields, {"n": 0, "classes": (), "settings": settings, "notes": dict(notes or {})})
        memory.file.create(fields.as_data())
        return memory

    @property
    def path(self) -> Path:
        """Where the memory file is."""
        return self.file.path

    @property
    def settings(self) -> Settings:
        """The settings kept in the file."""
        return Fields.of(self.file.header(), self.path).settings

    @property
    def n(self) -> int:
        """Samples held."""
        return Fields.of(self.file.header(), self.path).n

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels in order of first appearance."""
        return Fields.of(self.file.header(), self.path).classes

    @property
    def notes(self) -> Mapping[str, str]:
        """What was noted in the file when it was made."""
        return self._notes(self.file.header())

    @property
    def digest(self) -> str:
        """Stands for the whole content (settings, levels, buffer, classes): equal digests, equal memories."""
        return self.file.header().digest

    def nbytes(self) -> int:
        """Bytes needed to go on: the file at rest, less the global model kept in it."""
        return self.file.nbytes()

    def plan(self, incoming: int) -> allocation.Plan:
        """What absorbing `incoming` more samples would retrain."""
        fields = Fields.of(self.file.header(), self.path)
        return allocation.plan(fields.n, fields.n + incoming, fields.settings.unit)

    def absorb(
        self,
        images: Any,
        labels: Any,
        *,
        engine: Engine | None = None,
        callbacks: Sequence[Callback] = (),
        progress: Progress | None = None,
    ) -> Absorbed:
        """Add one task of labelled samples; afterwards the raw data is no longer needed.

        images: (n, C, H, W), or (n, H, W) for one channel; uint8, or floats in [0, 1].
        labels: n integers or n strings.
        engine: who trains the levels, this process by default; see `logcl.nn.engines`.
        callbacks: called with a `Moment` now and then; see `logcl.integrations.logs`.

        What the memory holds changes once, at the end. Until then, and after any error or kill, it is as
        before; the same task, absorbed again, goes on with the levels that had been trained.
        """
        began = time.monotonic()
        progress = WithCallbacks(progress, callbacks)
        with self.file.writing():
            header, now = self._load()
            x = as_pixels(images, now.settings.image_shape)
            y, classes = number_classes(as_labels(labels, len(x)), now.classes)
            if not len(x):
                raise BadInput("the task is empty; give at least one sample")
            n = now.n + len(x)
            plan = allocation.plan(now.n, n, now.settings.unit)

            # Retired levels are replayed a last time; what was in the buffer or comes now is still raw.
            retired = [level.samples() for level in now.levels if level.slot in plan.retire]
            pool = samples.concatenate([*retired, now.buffer, samples.raw(x, y)])
            first = n - len(pool) + 1

            parts = {slot: pool.part(slot.start - first, slot.stop - first + 1) for slot in plan.train}
            task = staging.task_digest(header.digest, x, y, classes)
            fitted = self._staged(task, plan.train)
            resumed = tuple(fitted)
            steps = fitting.expected_steps(parts, now)
            with progress.track(f"absorbing {len(x):,} samples", max(sum(steps.values()), 1)) as count:
                count(sum(steps[slot] for slot in resumed))
                for jobs in fitting.waves(parts, plan, now, fitted):
                    for job, fit in (engine or Local()).run(jobs, CountedProgress(progress, count)):
                        done = staging.Staged(task, LocalModel.from_bytes(fit.blob, job.name), fit.order)
                        fitted[done.slot] = done
                        last = len(fitted) == len(parts)  # it is committed in a moment
                        if fit.seconds >= _WORTH_STAGING and not last:
                            self._stage(done)

            # A completed unit takes all that waited in the buffer; otherwise the buffer grows by a chunk.
            begin = plan.buffer.start if plan.train else buffer.chunk_start(now.chunks, now.n + 1, n + 1)
            new = {f"level-{slot.level}": fitted[slot].model.to_bytes() for slot in plan.train}
            if begin <= n:
                new[f"buffer-{begin}"] = buffer.to_bytes(begin, pool.part(begin - first, len(pool)))
            gone = [f"level-{slot.level}" for slot in plan.retire]
            gone += [f"buffer-{start}" for start in now.chunks if plan.train or start >= begin]
            fields = Fields(n=n, classes=classes, settings=now.settings, notes=self._notes(header))
            self.file.commit(header, fields.as_data(), new, gone)
            progress.log(
                Moment(
                    "memory", n, n,
                    {
                        "absorbed": len(x), "bytes": self.nbytes(), "levels": len(plan.keep + plan.train),
                        "samples_trained": sum(slot.samples for slot in plan.train),
                        "seconds": time.monotonic() - began,
                    },
                )
            )  # fmt: skip
            return Absorbed(plan, {slot: fitted[slot].order for slot in plan.train}, resumed)

    def replay(self, batch_size: int = 128, *, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless batches of samples drawn evenly from all that were ever absorbed, i ~ U{1..n}.

        Images (batch_size, C, H, W) are floats in [0, 1]. Labels (batch_size,) are the integers that were
        absorbed or, for labels that are strings, positions in `classes`. What is replayed is the memory
        at the moment of the call.
        """
        if batch_size < 1:
            raise BadInput(f"batch_size is {batch_size}; it must be at least 1")
        return self._filled().batches(batch_size, torch.Generator().manual_seed(seed))

    @overload
    def dataset(self) -> ReplayDataset: ...

    @overload
    def dataset(
        self, *, iterable: Literal[True], batch_size: int | None = None, shard: tuple[int, int] = (0, 1)
    ) -> ReplayStream: ...

    def dataset(
        self, *, iterable: bool = False, batch_size: int | None = None, shard: tuple[int, int] = (0, 1)
    ) -> ReplayDataset | ReplayStream:
        """The memory at this moment as a data set for a `DataLoader`: map-style, or iterable.

        Map-style it has n samples by position, for any sampler. Iterable, each pass gives every sample once
        in random order, each worker decoding a share of its own: single samples, or whole batches if
        `batch_size` is given here and None to the loader. `shard=(rank, count)` is one of several shards,
        one per process. Images are floats in [0, 1], labels as in `replay`.
        """
        rank, count = shard
        if not 0 <= rank < count:
            raise BadInput(f"shard is {shard}; give (rank, count) with 0 <= rank < count")
        if batch_size is not None and batch_size < 1:
            raise BadInput(f"batch_size is {batch_size}; it must be at least 1")
        if iterable:
            return ReplayStream(self._filled(), batch_size, Shard(rank, count))
        if batch_size is not None or count > 1:
            raise BadInput("batch_size and shard are for dataset(iterable=True); a loader batches this one")
        return ReplayDataset(self._filled())

    def snapshot(self) -> Snapshot:
        """Everything the memory holds at this moment, loaded and checked."""
        return self._load()[1]

    def verify(self, *, progress: Progress | None = None) -> list[str]:
        """Every problem with the file and its content, each in a sentence; an empty list if all is well.

        Checks SQLite's structure, all digests, that the levels are those of n samples (R1 to R3), that no
        sample was re-encoded more often than the lemma allows, and that every level can be replayed.
        """
        problems = self.file.problems()
        if problems:
            return problems
        try:
            now = self.snapshot()
            bound = allocation.max_generation(now.n, now.settings.unit)
            for level in now.levels:
                most = min(bound, level.slot.level)
                if max(run.generation for run in level.runs) > most:
                    problems.append(f"level {level.slot.level} has samples re-encoded more than {most} times")
            for _ in now.pieces(progress):
                pass
        except LogCLError as error:
            problems.append(str(error))
        return problems

    def _notes(self, header: Header) -> dict[str, str]:
        return Fields.of(header, self.path).notes

    def _staged(self, task: str, slots: Sequence[allocation.Slot]) -> dict[allocation.Slot, staging.Staged]:
        """What was fitted of this very task before it was interrupted; work for any other task goes."""
        found = {}
        blobs = self.file.staged()
        for name, blob in blobs.items():
            try:
                staged = staging.Staged.from_bytes(blob, f"{self.path}: staged {name}")
            except Damaged:
                continue  # it is trained again, and `verify` tells
            if staged.task == task and staged.slot in slots:
                found[staged.slot] = staged
        if blobs and not found:
            self.file.drop_staged()
        return found

    def _stage(self, fitted: staging.Staged) -> None:
        """Keep a fitted model until the commit."""
        try:
            self.file.stage(f"level-{fitted.slot.level}", fitted.to_bytes())
        except Busy:
            return  # a reader did not let go of the file: only a crash from here on would cost time

    def _filled(self) -> Snapshot:
        now = self.snapshot()
        if not now.n:
            raise NotTrained(f"{self.path} holds no samples yet; absorb some first")
        return now

    def _load(self) -> tuple[Header, Snapshot]:
        """Read what is not loaded yet; parts are known by their digests, so nothing is read twice."""
        # Threads may share a memory: what is known is copied here and replaced at the end, never edited.
        parts = dict(self._parts)
        header, blobs = self.file.snapshot(known=parts)
        fields = Fields.of(header, self.path)
        for name, blob in blobs.items():
            where = f"{self.path}: part {name}"
            part: LocalModel | tuple[int, samples.Samples]
            if name.startswith("level-"):
                part = LocalModel.from_bytes(blob, where)
                proper = f"level-{part.slot.level}"
            else:
                part = buffer.from_bytes(blob, fields.settings.image_shape, where)
                proper = f"buffer-{part[0]}"
            if name != proper:
                raise Damaged(f"{where} holds {proper}; `logcl verify` says what is intact")
            parts[header.parts[name]] = part
        loaded = [parts[digest] for digest in header.parts.values()]
        self._parts = dict(zip(header.parts.values(), loaded, strict=True))
        levels = sorted((p for p in loaded if isinstance(p, LocalModel)), key=lambda p: p.slot.start)
        chunks = sorted((p for p in loaded if isinstance(p, tuple)), key=lambda p: p[0])
        if any(start + len(chunk) != after for (start, chunk), (after, _) in pairwise(chunks)):
            raise Damaged(f"{self.path}: its buffer has gaps; `logcl verify` says what is intact")
        nothing = samples.raw(np.empty((0, *fields.settings.image_shape), np.uint8), np.empty(0, np.int64))
        waiting = samples.concatenate([nothing, *(chunk for _, chunk in chunks)])
        now = Snapshot(
            settings=fields.settings,
            classes=fields.classes,
            levels=tuple(levels),
            buffer=waiting,
            chunks=tuple(start for start, _ in chunks),
            digest=header.digest,
        )
        if problem := inconsistency(now, fields.n):
            raise Damaged(f"{self.path}: {problem}; `logcl verify` says what is intact")
        return header, now

    def _check_agrees(
        self, image_shape: ImageShape | None, preset: str | None, changes: dict[str, Any]
    ) -> None:
        """What the caller asks for must be what the file has."""
        has = self.settings
        if image_shape is not None and tuple(image_shape) != has.image_shape:
            raise BadSettings(
                f"{self.path} holds images of shape {has.image_shape}, not {tuple(image_shape)}; "
                f"resize the images or use another memory"
            )
        if preset is not None and preset != has.preset:
            raise BadSettings(
                f"{self.path} was made with preset {has.preset}, not {preset}; leave preset out"
            )
        if override(has, changes) != has:
            asked = ", ".join(f"{name} = {value}" for name, value in changes.items())
            raise BadSettings(
                f"{self.path} has other settings than {asked}; they are fixed when it is created"
            )
