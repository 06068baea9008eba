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

from logcl.core.errors import BadInput
from logcl.core.settings import ImageShape
from logcl.integrations.avalanche.image_format import Normalisation
from logcl.integrations.avalanche.replay import Decoder, replay_dataset
from logcl.integrations.avalanche.samples import SampleFormat
from logcl.integrations.experiences import Experience, Experiences, digest
from logcl.integrations.temporary import TemporaryMemory
from logcl.memory.memory import Memory

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
        like: AvalancheDataset | None = None,
        **new: Any,
    ) -> None:
        """Keep the settings; the memory is opened or created at the first experience.

        memory: an open memory, its path, or None for a temporary one that is deleted with this object.
        max_size: the number of samples in `buffer`, drawn uniformly after each experience; None for all. The
        memory holds every sample in any case.
        image_shape: (channels, height, width) that PIL images are resized to; without it all must have the
        same size.
        normalised: mean and standard deviation per channel, if the data set itself normalises its images. Not
        needed for the benchmark's transforms, which are applied to replayed images as well.
        like: a data set with the format of replayed samples, if `buffer` is used before any experience.
        new: settings of a new memory, as in `Memory.open`: preset, unit, seed, settings.
        """
        super().__init__(max_size)
        where = memory.path if isinstance(memory, Memory) else memory
        self.path = None if where is None else Path(where).absolute()
        self.image_shape, self.normalised, self._new = image_shape, normalised, new
        self._memory = memory if isinstance(memory, Memory) else None
        self._like = like
        self._format: SampleFormat | None = None
        self._reached: int | None = None  # samples absorbed up to here in this run; the file may hold more
        self._offered: tuple[tuple[str, int, int | None], AvalancheDataset] | None = None
        self._decoder = Decoder()
        self._experiences: Experiences | None = None

    @property
    def memory(self) -> Memory | None:
        """The memory; None until there is one."""
        if self._memory is None and self.path is not None and self.path.exists():
            self._memory = Memory.open(self.path, self.image_shape, **self._new)
        return self._memory

    @property
    def buffer(self) -> AvalancheDataset:
        """The samples to replay, as an Avalanche data set."""
        memory = self.memory
        n = 0 if memory is None else memory.n
        n = n if self._reached is None else min(n, self._reached)
        if memory is None or not n:
            return AvalancheDataset([])
        key = memory.digest, n, self.max_size
        if self._offered is None or self._offered[0] != key:
            self._offered = key, self._dataset(memory, n)
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
        n, count, held = self.memory.n, len(exp.dataset), None
        if any(other.stop - other.start == count for other in self._known().held(n)):
            held = self._known().find(digest(*sample_format.read(exp.dataset)), n)
        if held is None:
            self._reached = n
        elif self._reached is None:
            self._reached = held.start

    def post_adapt(self, agent: Any, exp: Any) -> None:
        """Absorb the experience that was just learned."""
        del agent
        self.update_from_dataset(exp.dataset)

    def update_from_dataset(self, new_data: AvalancheDataset) -> None:
        """Absorb a data set, unless the memory already holds the same samples in the same order."""
        if not len(new_data):
            return
        pixels, labels = self._adopt_format(new_data).read(new_data)
        if self.memory is None:
            memory = TemporaryMemory() if self.path is None else Memory(self.path)
            Memory.open(memory.path, pixels.shape[1:], **self._new)
            self._memory = memory
        assert self.memory is not None
        known, n = self._known(), self.memory.n
        held = known.find(digest(pixels, labels), n)
        if held is None:
            held = Experience(n, n + len(labels), digest(pixels, labels), held=False)
            known.add(held)
            self.memory.absorb(pixels, labels)
            known.add(held._replace(held=True))
        self._reached = max(self._reached or 0, held.stop)

    def update(self, strategy: Any, **kwargs: Any) -> None:
        """Same as `post_adapt`; called by the plugins of Avalanche 0.6."""
        del kwargs
        self.post_adapt(strategy, strategy.experience)

    def resize(self, strategy: Any, new_size: int | None) -> None:
        """Change the number of samples in `buffer`; the memory does not change."""
        del strategy
        self.max_size = new_size

    def _adopt_format(self, data: AvalancheDataset) -> SampleFormat:
        self._format, self._offered = SampleFormat.of(data, self.image_shape, self.normalised), None
        return self._format

    def _dataset(self, memory: Memory, n: int) -> AvalancheDataset:
        """The n oldest samples of a memory, or a random choice of them."""
        if self._format is None and self._like is not None:
            self._adopt_format(self._like)
        if self._format is None:
            raise BadInput(
                f"{memory.path} holds samples of an earlier run, and the format to replay them in is not "
                f"known yet; give like=benchmark.train_stream[0].dataset"
            )
        now = memory.snapshot()
        if isinstance(now.classes[0], str):
            raise BadInput(
                f"{memory.path} has strings as labels, but Avalanche needs integers; use another memory"
            )
        fit = _MAX_DECODED // math.prod(now.settings.image_shape)
        most = fit if self.max_size is None else min(fit, self.max_size)
        if n <= most:
            return replay_dataset(self._decoder.first(now, n), self._format)
        rng = np.random.default_rng((now.settings.seed, n))
        indices = np.sort(rng.choice(n, most, replace=False)) + 1
        return replay_dataset(self._decoder.some(now, indices), self._format)

    def _known(self) -> Experiences:
        assert self._memory is not None
        if self._experiences is None:
            self._experiences = Experiences(self._memory.path)
        return self._experiences

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: the memory is saved as its path, and data sets are not saved."""
        if self.path is None:
            raise BadInput("a checkpoint cannot contain a temporary memory; give the memory a path")
        if self._format is None and self._like is not None:
            self._adopt_format(self._like)
        dropped = dict.fromkeys(("_memory", "_like", "_offered", "_experiences"))
        return {**self.__dict__, **dropped, "_decoder": Decoder()}


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
        options: max_size, image_shape, normalised and the settings of a new memory, as in `LogCLBuffer`.
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
