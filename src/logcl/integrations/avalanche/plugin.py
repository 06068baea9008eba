"""Replay from a memory inside Avalanche (`pip install 'logcl[avalanche]'`).

strategy = Naive(model=model, optimizer=optimizer, plugins=[LogCLPlugin("pets.logcl")])
for experience in benchmark.train_stream:
    strategy.train(experience)
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

try:
    import avalanche  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "avalanche":  # a dependency of Avalanche
        raise
    raise ImportError("avalanche-lib is not installed; run pip install 'logcl[avalanche]'") from missing

import numpy as np
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.training.plugins import ReplayPlugin
from avalanche.training.storage_policy import ExemplarsBuffer
from numpy.typing import NDArray

from logcl.core.errors import BadInput
from logcl.core.settings import ImageShape
from logcl.core.sizes import parse_size
from logcl.integrations.avalanche.replay import Decoder, replay_dataset
from logcl.integrations.avalanche.samples import Normalisation, SampleFormat
from logcl.integrations.memories import PathMemory, creating
from logcl.memory.ledger import Entry, content_digest
from logcl.memory.memory import Memory
from logcl.memory.snapshot import Snapshot
from logcl.nn import backbones
from logcl.nn.backbones import Backbone

__all__ = ["LogCLBuffer", "LogCLPlugin"]

_MAX_DECODED = 2**32  # bytes of decoded images; of a larger memory, only as many samples as fit are offered


class LogCLBuffer(ExemplarsBuffer):  # type: ignore[misc]
    """A storage policy, for `ReplayPlugin` and similar plugins, that keeps every sample in a memory.

    `buffer` is a data set of what was absorbed, decoded on first use after each experience. Its samples have
    the format of the latest experience: the same minibatches, (x, y) or (x, y, t), and the same transforms.
    """

    def __init__(
        self,
        memory: Memory | str | os.PathLike[str] | None = None,
        max_size: int | None = None,
        *,
        image_shape: ImageShape | None = None,
        normalised: Normalisation | None = None,
        backbone: str | Backbone | None = None,
        like: AvalancheDataset | None = None,
        **new: Any,
    ) -> None:
        """Keep the settings; the memory is opened or created at the first experience.

        memory: an open memory, its path, or None for a temporary one that is deleted with this object.
        max_size: the number of samples in `buffer`, drawn uniformly after each experience; None for all. The
        memory holds every sample in any case.
        image_shape: (channels, height, width) that PIL images are resized to, cropped to the middle unless
        `fit` says otherwise; without it all must have the same size.
        normalised: mean and standard deviation per channel, if the data set itself normalises its images. Not
        needed for the benchmark's transforms, which are applied to replayed images as well.
        backbone: the memory holds features of this network. The benchmark is made of features as well, by
        `features_of`, and the strategy's model takes features (n, D).
        like: a data set with the format of replayed samples, if `buffer` is used before any experience.
        new: settings of a new memory, as in `Memory.open`: preset, unit, seed, fit, settings, and others.
        """
        super().__init__(max_size)
        where = memory.path if isinstance(memory, Memory) else memory
        self.path = None if where is None else Path(where).absolute()
        self.image_shape, self.normalised, self._new = image_shape, normalised, new
        self.backbone = backbone
        self._memory: Memory | None = None
        self._given = memory if isinstance(memory, Memory) else None
        self._like = like
        self._format: SampleFormat | None = None
        # Last index to replay: a repeated run must not see what the first one absorbed later.
        self._last: int | None = None
        self._offered: tuple[tuple[str, int, int | None], AvalancheDataset] | None = None
        self._decoder = Decoder()

    @property
    def memory(self) -> Memory | None:
        """The memory; None until there is one. It is refused once another one has taken its place."""
        if self._memory is None and self.path is not None and self.path.exists():
            if self._given is None:
                # Refuses other settings.
                Memory.open(self.path, self.image_shape, backbone=self.backbone, **self._new)
            self._memory = PathMemory(self.path)
        if self._memory is not None and isinstance(self.backbone, Backbone):
            self._memory.given = self.backbone
        return self._memory

    @property
    def buffer(self) -> AvalancheDataset:
        """The samples to replay, as an Avalanche data set."""
        if self.memory is None:
            return AvalancheDataset([])
        now = self.memory.snapshot().for_training()
        indices = now.live if self._last is None else now.live[now.live <= self._last]
        if not len(indices):
            return AvalancheDataset([])
        key = now.digest, len(indices), self.max_size
        if self._offered is None or self._offered[0] != key:
            self._offered = key, self._dataset(now, indices)
        return self._offered[1]

    @buffer.setter
    def buffer(self, new_buffer: AvalancheDataset) -> None:
        del new_buffer
        raise BadInput("the buffer of a memory cannot be set; call update_from_dataset() to add samples")

    def pre_adapt(self, agent: Any, exp: Any) -> None:
        """Adopt the sample format of the experience that is about to be learned.

        If a run is repeated and the memory already holds the experience, only the samples from before it are
        replayed, as in the first run.
        """
        del agent
        if not len(exp.dataset):
            return
        sample_format = self._adopt_format(exp.dataset)
        if self.memory is None:
            return
        entry = None
        if any(task.samples == len(exp.dataset) for task in self.memory.ledger):  # spares reading the images
            entry = _find(self.memory, *sample_format.read(exp.dataset))
        if entry is None:
            self._last = int(self.memory.snapshot().live.max(initial=0))
        elif self._last is None:
            self._last = entry.start - 1

    def post_adapt(self, agent: Any, exp: Any) -> None:
        """Absorb the experience that was just learned."""
        del agent
        self.update_from_dataset(exp.dataset, f"avalanche:experience {exp.current_experience}")

    def update_from_dataset(self, new_data: AvalancheDataset, source: str = "avalanche") -> None:
        """Absorb a data set, unless the same samples in the same order were absorbed before."""
        if not len(new_data):
            return
        pixels, labels = self._adopt_format(new_data).read(new_data)
        if (memory := self.memory) is None:
            with creating(self.path) as new:
                if self._given is None:
                    shape = pixels.shape[1:] if self.backbone is None else self.image_shape
                    started = Memory.open(new.path, shape, backbone=self._network(), **self._new)
                else:
                    started = Memory.create(new.path, self._given.settings, self._given.notes)
                started.absorb(pixels, labels, source=source)
            self._memory = memory = new if self.path is None else PathMemory(self.path)
        entry = _find(memory, pixels, labels)
        if entry is None:
            memory.absorb(pixels, labels, source=source, again=True)  # streams may repeat images
            entry = memory.ledger[-1]
        self._last = max(self._last or 0, entry.stop)

    def update(self, strategy: Any, **kwargs: Any) -> None:
        """Same as `post_adapt`; called by the plugins of Avalanche 0.6."""
        del kwargs
        self.post_adapt(strategy, strategy.experience)

    def resize(self, strategy: Any, new_size: int | None) -> None:
        """Change the number of samples in `buffer`; the memory does not change."""
        del strategy
        self.max_size = new_size

    def _adopt_format(self, data: AvalancheDataset) -> SampleFormat:
        holder = self.memory or self._given
        if holder is not None:
            spec = holder.settings.backbone
        else:
            network = self._network()
            spec = None if network is None else network.spec
        asked = {**(self._new.get("settings") or {}), **self._new}
        fit = asked.get("fit") or "crop" if self.memory is None else self.memory.settings.fit
        self._format = SampleFormat.of(data, self.image_shape, self.normalised, fit, spec)
        self._offered = None
        return self._format

    def _network(self) -> Backbone | None:
        """The backbone of a new memory."""
        if not isinstance(self.backbone, str):
            return self.backbone
        return backbones.named(
            self.backbone, None if self.image_shape is None else parse_size(self.image_shape).shape()
        )

    def _dataset(self, now: Snapshot, indices: NDArray[np.int64]) -> AvalancheDataset:
        """The oldest samples, with these indices, or a random choice of them."""
        if self._format is None and self._like is not None:
            self._adopt_format(self._like)
        if self._format is None:
            raise BadInput(
                f"{self.path} holds samples of an earlier run, and the format to replay them in is not "
                f"known yet; give like=benchmark.train_stream[0].dataset"
            )
        if isinstance(now.classes[0], str):
            raise BadInput(
                f"{self.path} has strings as labels, but Avalanche needs integers; use another memory"
            )
        fit = _MAX_DECODED // math.prod(now.settings.image_shape)
        most = fit if self.max_size is None else min(fit, self.max_size)
        if len(indices) <= most:
            return replay_dataset(self._decoder.first(now, len(indices)), self._format)
        rng = np.random.default_rng((now.settings.seed, len(indices)))
        chosen = indices[np.sort(rng.choice(len(indices), most, replace=False))]
        return replay_dataset(self._decoder.some(now, chosen), self._format)

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: the memory is saved as its path and lineage, and data sets are not saved."""
        if self.path is None:
            raise BadInput("a checkpoint cannot contain a temporary memory; give the memory a path")
        if self._format is None and self._like is not None:
            self._adopt_format(self._like)
        dropped = dict.fromkeys(("_given", "_like", "_offered"))
        return {**self.__dict__, **dropped, "_decoder": Decoder()}


def _find(memory: Memory, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Entry | None:
    """The task with these samples in this order, if the memory has absorbed it."""
    digest = content_digest(pixels, labels.tolist())
    return next((task for task in memory.ledger if task.digest == digest), None)


class LogCLPlugin(ReplayPlugin):  # type: ignore[misc]
    """Avalanche's `ReplayPlugin` with a memory as storage, so that no sample is ever dropped."""

    def __init__(
        self,
        memory: LogCLBuffer | Memory | str | os.PathLike[str] | None = None,
        batch_size: int | None = None,
        batch_size_mem: int | None = None,
        task_balanced_dataloader: bool = False,
        **options: Any,
    ) -> None:
        """Keep the settings.

        memory: an open memory, its path, or None for a temporary one that is deleted with this object.
        batch_size, batch_size_mem: samples per minibatch from the experience and from the memory; both are
        the strategy's `train_mb_size` by default.
        task_balanced_dataloader: whether minibatches have equally many replayed samples of every task.
        options: max_size, image_shape, normalised, backbone and the settings of a new memory, as in
        `LogCLBuffer`.
        """
        storage = memory if isinstance(memory, LogCLBuffer) else LogCLBuffer(memory, **options)
        super().__init__(storage.max_size, batch_size, batch_size_mem, task_balanced_dataloader, storage)

    @property
    def memory(self) -> Memory | None:
        """The memory; None before the first experience of a new one."""
        found: Memory | None = self.storage_policy.memory
        return found

    def before_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Give the strategy a data loader of the experience and the memory, unless the memory is empty."""
        self.storage_policy.pre_adapt(strategy, strategy.experience)
        buffer = self.storage_policy.buffer
        if self.task_balanced_dataloader and len(buffer) and not hasattr(buffer, "targets_task_labels"):
            raise BadInput("this benchmark has no task labels; leave task_balanced_dataloader out")
        super().before_training_exp(strategy, *args, **kwargs)
