"""The memory: every sample ever seen, in as many local models as there are 1-bits in the number of units.

memory = Memory.open("pets.logcl", image_shape=(3, 32, 32))
memory.absorb(images, labels)
for x, y in memory.replay(batch_size=128): ...
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl import allocation
from logcl.core.errors import BadInput, LogCLError, NotAMemory, NotTrained
from logcl.core.inputs import Label, as_labels, channels_of, number_classes
from logcl.core.progress import Callback, Progress, WithCallbacks
from logcl.core.settings import ImageFit, parse_as
from logcl.core.sharding import Shard
from logcl.core.sizes import COLOUR, AskedShape, ImageSize, parse_size
from logcl.memory import fitting, samples, texts
from logcl.memory.changes import changes
from logcl.memory.choosing import Choice, choose
from logcl.memory.datasets import ReplayDataset, ReplayStream
from logcl.memory.featured import as_samples
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.ledger import Entry, check_is_new, new_entry
from logcl.memory.loading import Loader
from logcl.memory.manifest import Manifest
from logcl.memory.presets import preset as preset_settings
from logcl.memory.reporting import announce, warn_if_poor
from logcl.memory.settings import Settings, override
from logcl.memory.snapshot import Snapshot
from logcl.memory.staging import Staging, task_digest
from logcl.nn import backbones
from logcl.nn.backbones import Backbone
from logcl.nn.engines import Engine, Local


@dataclass(frozen=True)
class Absorbed:
    """What one task did to the memory."""

    plan: allocation.Plan
    orders: Mapping[allocation.Slot, NDArray[np.intp]]
    """For each fitted slot: row j holds input number order[j] of that fit (see LocalModel.fit)."""
    resumed: tuple[allocation.Slot, ...] = ()
    """Slots that had been fitted when this task was interrupted before."""
    n: int = 0
    """Samples that the memory holds now."""
    samples: int = 0
    """Samples that the task had."""

    def __repr__(self) -> str:
        return f"<Absorbed {texts.absorbed(self.samples, self.n, self.plan, self.resumed)}>"


class Memory:
    """One memory file. Reading never blocks writing for long; a second writer is refused."""

    def __init__(self, path: str | os.PathLike[str], new: Manifest | None = None) -> None:
        """Use `Memory.open` or `Memory.new`; this only keeps the path."""
        self.file = MemoryFile(path, None if new is None else new.as_data())
        self._loader = Loader(self.file)
        self._by_channels: Callable[[int], Settings] | None = None
        """The settings of a new memory whose first images decide how many channels it has."""
        self.given: Backbone | None = None
        """The backbone that the memory was opened with; others are found by their name."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {texts.memory(self.file)}>"

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        image_shape: AskedShape | None = None,
        *,
        backbone: str | Backbone | None = None,
        thumbnails: int = 0,
        fit: ImageFit | None = None,
        bytes_per_sample: float | None = None,
        psnr: float | None = None,
        codec: str | None = None,
        preset: str | None = None,
        dataset: str | None = None,
        seed: int | None = None,
        unit: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Memory:
        """Open a memory, or create it if there is none at `path`.

        Creating needs an `image_shape` or a `backbone`. The shape is (channels, height, width), or (height,
        width) or a side only. Then the first images decide whether there is one channel or three, and the
        first task creates the file. The other arguments choose settings, which are stored in the file. For a
        memory that exists they may be left out, and must agree if given.

        backbone: a frozen, pretrained network whose features the memory holds instead of images. It is
        `efficientnet-lite0`, a model of timm (NAME, or NAME=FILE with a file of weights), or made by
        `logcl.nn.backbones`; `image_shape` is then the size of the images that it is given.
        thumbnails: side of the small pictures to keep beside features, e.g. 32, for galleries and exports.
        fit: how PIL images of another aspect ratio get that shape: crop (default), pad or stretch.
        bytes_per_sample, or psnr in dB: the rate. codec: its name, instead of the best for the first task.
        preset: fast (default), paper-cpu or paper. settings: by dotted name, e.g. {"codec.epochs": 50}.
        dataset: the data set (mnist, omniglot, cifar100) whose hyperparameters the preset `paper` uses.
        """
        memory = Memory(path)
        size = None if image_shape is None else parse_size(image_shape)
        named = {
            "seed": seed, "unit": unit, "fit": fit, "codec.name": codec, "codec.psnr": psnr,
            "codec.bytes_per_sample": bytes_per_sample,
        }  # fmt: skip
        changes = {**(settings or {}), **{name: value for name, value in named.items() if value is not None}}
        if memory.file.exists():
            memory.given = _for_existing(memory.settings, backbone, size)
            about = backbone if memory.given is None else memory.given.spec
            assert not isinstance(about, Backbone)
            memory.manifest.check_agrees(memory.path, size, preset, changes, about, thumbnails)
            return memory
        network = backbone
        if isinstance(backbone, str):
            network = backbones.named(backbone, None if size is None else size.shape())
        assert not isinstance(network, str)
        memory.given, spec = network, None if network is None else network.spec
        wanted = size if spec is None else parse_size(spec.row(thumbnails))
        if wanted is None:
            raise NotAMemory(
                f"{path} does not exist; `logcl absorb` creates it, as does Memory.open with "
                f"image_shape=64 or (channels, height, width), or backbone=NAME"
            )

        def chosen(channels: int) -> Settings:
            start = preset_settings(preset or "fast", wanted.shape(channels), dataset, spec, thumbnails)
            return override(start, changes)

        if wanted.channels is not None:
            created = Memory.create(path, chosen(COLOUR))
            created.given = network
            return created
        memory = Memory.new(path, chosen(COLOUR))
        memory._by_channels = chosen
        return memory

    @staticmethod
    def create(
        path: str | os.PathLike[str], settings: Settings, notes: Mapping[str, str] | None = None
    ) -> Memory:
        """A new, empty memory at an unused path; `notes` are stored in it unchanged."""
        memory = Memory.new(path, settings, notes)
        memory.file.create(memory.manifest.as_data())
        return memory

    @staticmethod
    def new(
        path: str | os.PathLike[str],
        settings: Settings,
        notes: Mapping[str, str] | None = None,
        choice: Choice | None = None,
    ) -> Memory:
        """Like `create`, but the first task creates the file: if that task fails, there is none.

        choice: how the codec was chosen, if it was.
        """
        data = {"n": 0, "classes": (), "settings": settings, "notes": dict(notes or {}), "choice": choice}
        return Memory(path, parse_as(Manifest, data))

    @property
    def path(self) -> Path:
        """Where the memory file is."""
        return self.file.path

    @property
    def manifest(self) -> Manifest:
        """What the header says about the memory."""
        return Manifest.of(self.file.header(), self.path)

    @property
    def settings(self) -> Settings:
        """The settings stored in the file."""
        return self.manifest.settings

    @property
    def backbone(self) -> Backbone | None:
        """The network whose features the memory holds; None if it holds images."""
        spec = self.settings.backbone
        return None if spec is None else backbones.found(spec, self.given)

    @property
    def n(self) -> int:
        """Samples held."""
        return self.manifest.n

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels in order of first appearance."""
        return self.manifest.classes

    @property
    def notes(self) -> Mapping[str, str]:
        """The notes that were stored when the memory was created."""
        return self.manifest.notes

    @property
    def ledger(self) -> tuple[Entry, ...]:
        """One entry per task, oldest first; tasks absorbed before format 4 have none."""
        return self.snapshot().ledger

    @property
    def digest(self) -> str:
        """A digest of the content (settings, levels, buffer, classes): equal digests, equal memories."""
        return self.file.header().content

    def nbytes(self) -> int:
        """Bytes of the file at rest, without the global model stored in it."""
        return self.file.nbytes()

    def plan(self, incoming: int) -> allocation.Plan:
        """What absorbing `incoming` more samples would refit."""
        manifest = self.manifest
        try:
            last = manifest.last + allocation.whole(incoming, "incoming")
        except ValueError as error:
            raise BadInput(str(error)) from error
        return allocation.plan(manifest.last, last, manifest.settings.unit)

    def absorb(
        self,
        images: Any,
        labels: Any,
        *,
        source: str = "",
        again: bool = False,
        engine: Engine | None = None,
        callbacks: Sequence[Callback] = (),
        progress: Progress | None = None,
    ) -> Absorbed:
        """Add one task of labelled samples; afterwards the raw data is no longer needed.

        images: (n, C, H, W) or (n, H, W, C), the first if both fit, or (n, H, W) for one channel; uint8, or
        floats in [0, 1]; arrays or tensors. Or a list of PIL images of any mode and size, which are resized.
        A memory with a backbone takes images of any size, or features (n, D) as `memory.backbone.features`
        gives them.
        labels: n integers or n strings.
        source: where they come from, for the ledger.
        again: whether to absorb a task with exactly the images of an earlier one, instead of refusing it.
        engine: what fits the levels, by default this process; see `logcl.nn.engines`.
        callbacks: called with a `Moment` at intervals; see `logcl.integrations.logs`.

        What the memory holds changes once, at the end. Until then, and after any error or kill, it is as
        before. Absorbing the same task again resumes with the levels that had been fitted.
        """
        began = time.monotonic()
        observers = [*([progress.log] if progress else []), *callbacks]
        progress = WithCallbacks(progress, callbacks)
        self._settle(images)
        with self.file.writing():
            header, now = self._loader.load()
            x = as_samples(images, now.settings, lambda: self.backbone, progress)
            named = as_labels(labels, len(x))
            y, classes = number_classes(named, now.classes)
            if not len(x):
                raise BadInput("the task is empty; give at least one sample")
            first, last = now.manifest.last + 1, now.manifest.last + len(x)
            entry = new_entry(first, x, named.tolist(), source)
            if not again:
                check_is_new(entry, now.ledger, self.path)
            plan = allocation.plan(first - 1, last, now.settings.unit)

            # What is in the buffer or arrives now is still raw; retired levels merge into a new one.
            new = samples.concatenate([now.buffer, samples.raw(x, y, first)])
            parts = fitting.parts(plan, now, new)
            if parts:
                now = now.chosen(*choose(now.settings, new.x, new.y, progress))
            staging = Staging(self.file, header, task_digest(header.content, x, y, classes))
            resumed = staging.load(parts)
            fits = dict(resumed)
            with fitting.counting(progress, len(x), parts, now, resumed) as counted:
                for jobs in fitting.waves(parts, plan, now, fits):
                    for _, fit in (engine or Local()).run(jobs, counted):
                        fits[fit.slot] = fit
                        if len(fits) < len(parts):  # the last is committed in a moment
                            staging.keep(fit)

            n = now.n + len(x)
            manifest = now.manifest.model_copy(update={"n": n, "last": last, "classes": classes})
            put, gone = changes(header, now, plan, fits, new, entry)
            orders = {slot: fits[slot].order for slot in parts}
            done = Absorbed(plan, orders, tuple(resumed), n, len(x))
            warn_if_poor(self.path, fits.values(), now.settings)
            self.file.commit(header, manifest.as_data(), put, gone)
            announce(self.file, observers, plan, entry, time.monotonic() - began)
            return done

    def replay(
        self, batch_size: int = 128, *, seed: int = 0, for_training: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless batches of samples, drawn uniformly from all that the memory holds.

        Images (batch_size, C, H, W) are floats in [0, 1]; of a memory with a backbone there are features
        (batch_size, D) instead. Labels (batch_size,) are the integers that were
        absorbed or, if labels are strings, positions in `classes`. The memory is replayed as it is at the
        moment of the call. for_training: see `dataset`.
        """
        if batch_size < 1:
            raise BadInput(f"batch_size is {batch_size}; it must be at least 1")
        return self._filled(for_training).batches(batch_size, torch.Generator().manual_seed(seed))

    @overload
    def dataset(self, *, for_training: bool = False) -> ReplayDataset: ...

    @overload
    def dataset(
        self,
        *,
        iterable: Literal[True],
        batch_size: int | None = None,
        shard: tuple[int, int] = (0, 1),
        for_training: bool = False,
    ) -> ReplayStream: ...

    def dataset(
        self,
        *,
        iterable: bool = False,
        batch_size: int | None = None,
        shard: tuple[int, int] = (0, 1),
        for_training: bool = False,
    ) -> ReplayDataset | ReplayStream:
        """The memory at this moment as a data set for a `DataLoader`: map-style, or iterable.

        Map-style, it has n samples by position, for any sampler. Iterable, each epoch yields every sample
        once in random order, and each worker decodes its own shard: single samples, or whole batches if
        `batch_size` is given here and None to the loader. `shard=(rank, count)` is one of several shards,
        one per process. Images and labels are as in `replay`.

        for_training: whether to leave out restoration, as `Classifier.train` does. Restored images are nearer
        to the originals, but classifiers learn less from them.
        """
        rank, count = shard
        if not 0 <= rank < count:
            raise BadInput(f"shard is {shard}; give (rank, count) with 0 <= rank < count")
        if batch_size is not None and batch_size < 1:
            raise BadInput(f"batch_size is {batch_size}; it must be at least 1")
        if iterable:
            return ReplayStream(self._filled(for_training), batch_size, Shard(rank, count))
        if batch_size is not None or count > 1:
            raise BadInput("batch_size and shard are for dataset(iterable=True); a loader batches this one")
        return ReplayDataset(self._filled(for_training))

    def snapshot(self) -> Snapshot:
        """Everything the memory holds at this moment, loaded and checked."""
        return self._loader.load()[1]

    def verify(self, *, progress: Progress | None = None) -> list[str]:
        """Every problem with the file and its content, one sentence each; an empty list if there is none.

        Checks SQLite's structure, all digests, that the levels are those of n samples (R1 to R3), that no
        sample was re-encoded more often than the lemma allows, and that every level can be replayed.
        """
        problems = self.file.problems()
        if problems:
            return problems
        try:
            now = self.snapshot()
            bound = allocation.max_generation(now.manifest.last, now.settings.unit)
            for level in now.levels:
                most = min(bound, level.slot.level)
                if max(run.generation for run in level.runs) > most:
                    problems.append(f"level {level.slot.level} has samples re-encoded more than {most} times")
            now.check(progress)
        except LogCLError as error:
            problems.append(str(error))
        return problems

    def _settle(self, images: Any) -> None:
        """Let the first images of a new memory decide whether it is grey, unless that was asked for."""
        if self._by_channels is not None:
            _, height, width = self.settings.image_shape
            settings = self._by_channels(channels_of(images, height, width))
            self.file, self._by_channels = Memory.new(self.path, settings).file, None
            self._loader = Loader(self.file)

    def _filled(self, for_training: bool) -> Snapshot:
        now = self.snapshot()
        if not now.n:
            raise NotTrained(f"{self.path} holds no samples yet; absorb some first")
        return now.for_training() if for_training else now


def _for_existing(has: Settings, backbone: str | Backbone | None, size: ImageSize | None) -> Backbone | None:
    """The backbone that a caller gives for a memory; None if only by its name, by which it is found later."""
    if not isinstance(backbone, str):
        return backbone
    if "=" not in backbone:
        return None
    usual = None if has.backbone is None else has.input_shape
    return backbones.named(backbone, usual if size is None else size.shape())
