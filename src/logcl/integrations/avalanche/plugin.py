"""Replay from a memory inside Avalanche (`pip install 'logcl[avalanche]'`).

strategy = Naive(model=model, optimizer=optimizer, plugins=[LogCLPlugin("pets.logcl")])
for experience in benchmark.train_stream:
    strategy.train(experience)
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

try:
    import avalanche  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "avalanche":  # one of the packages that it needs itself
        raise
    raise ImportError("avalanche-lib is not installed; run pip install 'logcl[avalanche]'") from missing

import numpy as np
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.benchmarks.utils.data_loader import ReplayDataLoader
from avalanche.core import SupervisedPlugin
from avalanche.training.storage_policy import ExemplarsBuffer
from numpy.typing import NDArray

from logcl.core.errors import BadInput
from logcl.core.settings import ImageShape
from logcl.integrations.avalanche.data import Decoder, Look, Normalisation, read, replayed
from logcl.integrations.experiences import Experience, Experiences, digest
from logcl.memory.memory import Memory

__all__ = ["LogCLBuffer", "LogCLPlugin"]

_DECODED = 2**32  # bytes of decoded images; of a larger memory as many samples are offered as fit


class LogCLBuffer(ExemplarsBuffer):  # type: ignore[misc]
    """A storage policy that keeps every sample, in a memory: for `ReplayPlugin` and its like.

    `buffer` is a data set of what was absorbed, decoded when it is first asked for after an experience. It
    looks like the data of the experience last seen: the same minibatches, (x, y) or (x, y, t), and the same
    transforms.
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
        """Keep the settings; a memory is opened, or created, with the first experience.

        memory: one that is open, or its path, or None for one that is deleted with this object.
        max_size: how many samples `buffer` offers, drawn evenly from all after each experience; None: all.
        The memory holds everything in any case.
        image_shape: (channels, height, width) that PIL images of any size are brought to; by default all must
        have the size of the first.
        normalised: mean and deviation of each channel, if the data set itself normalises its images. What the
        benchmark's transforms do needs nothing: it is done to replayed images as well.
        like: a data set that replayed samples look like, if they are asked for before the first experience.
        new: settings of a new memory, as `Memory.open` takes them: preset, unit, seed, settings.
        """
        super().__init__(max_size)
        where = memory.path if isinstance(memory, Memory) else memory
        self.path = None if where is None else Path(where).absolute()
        self.image_shape, self.normalised, self._new = image_shape, normalised, new
        self._memory = memory if isinstance(memory, Memory) else None
        self._like = like
        self._look: Look | None = None
        self._reached: int | None = None  # samples that this run has come to; an earlier one left more
        self._temporary: Any = None
        self._offered: tuple[tuple[str, int, int | None], AvalancheDataset] | None = None
        self._decoder = Decoder()
        self._experiences: Experiences | None = None

    @property
    def memory(self) -> Memory | None:
        """The memory; None as long as there is none."""
        if self._memory is None and self.path is not None and self.path.exists():
            self._memory = Memory.open(self.path, self.image_shape, **self._new)
        return self._memory

    @property
    def buffer(self) -> AvalancheDataset:
        """What is replayed, as an Avalanche data set."""
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
        raise BadInput("the buffer of a memory cannot be set; update_from_dataset() adds samples to it")

    def pre_adapt(self, agent: Any, exp: Any) -> None:
        """See the experience that is about to be learned: what is replayed beside it will look like it.

        If the memory holds it already, because a run was begun again, only what had come before it is
        replayed, as it was then.
        """
        del agent
        if not len(exp.dataset):
            return
        look = self._see(exp.dataset)
        if self.memory is None:
            return
        n, count, held = self.memory.n, len(exp.dataset), None
        if any(other.stop - other.start == count for other in self._known().held(n)):
            held = self._known().find(digest(*self._read(exp.dataset, look)), n)
        if held is None:
            self._reached = n
        elif self._reached is None:
            self._reached = held.start

    def post_adapt(self, agent: Any, exp: Any) -> None:
        """Absorb the experience that was just learned."""
        del agent
        self.update_from_dataset(exp.dataset)

    def update_from_dataset(self, new_data: AvalancheDataset) -> None:
        """Absorb a data set, unless the memory holds these very samples, in this order, already."""
        if not len(new_data):
            return
        pixels, labels = self._read(new_data, self._see(new_data))
        memory = self._opened(pixels)
        known, n = self._known(), memory.n
        held = known.find(digest(pixels, labels), n)
        if held is None:
            held = Experience(n, n + len(labels), digest(pixels, labels), held=False)
            known.add(held)
            memory.absorb(pixels, labels)
            known.add(held._replace(held=True))
        self._reached = max(self._reached or 0, held.stop)

    def update(self, strategy: Any, **kwargs: Any) -> None:
        """As `post_adapt`; what plugins of Avalanche 0.6 call."""
        del kwargs
        self.post_adapt(strategy, strategy.experience)

    def resize(self, strategy: Any, new_size: int | None) -> None:
        """Offer so many samples; what the memory holds stays."""
        del strategy
        self.max_size = new_size

    def _see(self, data: AvalancheDataset) -> Look:
        self._look, self._offered = Look.of(data, self.image_shape), None
        return self._look

    def _dataset(self, memory: Memory, n: int) -> AvalancheDataset:
        look = self._look or (None if self._like is None else self._see(self._like))
        if look is None:
            raise BadInput(
                f"{memory.path} holds samples of an earlier run, and nothing says yet how they should look; "
                f"give like=benchmark.train_stream[0].dataset"
            )
        now = memory.snapshot()
        if isinstance(now.classes[0], str):
            raise BadInput(f"{memory.path} has strings as labels, and Avalanche's are integers; use another")
        fit = _DECODED // math.prod(now.settings.image_shape)
        most = fit if self.max_size is None else min(fit, self.max_size)
        if n <= most:
            images, labels = self._decoder.first(now, n)
        else:
            rng = np.random.default_rng((now.settings.seed, n))
            images, labels = self._decoder.some(now, np.sort(rng.choice(n, most, replace=False)) + 1)
        return replayed(images, labels, look, self.normalised)

    def _read(self, data: AvalancheDataset, look: Look) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return read(data, look.form, self.image_shape, self.normalised)

    def _opened(self, pixels: NDArray[np.uint8]) -> Memory:
        if self.path is None:
            folder = tempfile.mkdtemp(prefix="logcl-")
            self._temporary = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self.path = Path(folder) / "memory.logcl"
        if self.memory is None:
            channels, height, width = pixels.shape[1:]
            self._memory = Memory.open(self.path, (channels, height, width), **self._new)
        assert self._memory is not None
        return self._memory

    def _known(self) -> Experiences:
        assert self.path is not None
        if self._experiences is None:
            self._experiences = Experiences(self.path)
        return self._experiences

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: the memory is its path, and data sets are not saved."""
        if self.path is None or self._temporary is not None:
            raise BadInput("a temporary memory is gone when a checkpoint is read; give the memory a path")
        if self._look is None and self._like is not None:
            self._see(self._like)
        gone = dict.fromkeys(("_memory", "_like", "_offered", "_temporary", "_experiences"))
        return {**self.__dict__, **gone, "_decoder": Decoder()}


class LogCLPlugin(SupervisedPlugin):  # type: ignore[misc]
    """Replays from a memory beside each experience, and absorbs the experience when it is learned.

    As Avalanche's `ReplayPlugin`, in any strategy, but nothing is ever dropped from what is replayed.
    """

    def __init__(
        self,
        memory: LogCLBuffer | Memory | str | os.PathLike[str] | None = None,
        batch_size: int | None = None,
        batch_size_mem: int | None = None,
        task_balanced_dataloader: bool = False,
        **options: Any,
    ) -> None:
        """Keep the settings.

        memory: one that is open, or its path, or None for one that is deleted with this object.
        batch_size, batch_size_mem: samples of the experience and of the memory in a minibatch; the strategy's
        `train_mb_size` of each by default.
        task_balanced_dataloader: whether the memory's part of a minibatch has equal shares of all tasks.
        options: max_size, image_shape, normalised and settings of a new memory, as `LogCLBuffer` takes them.
        """
        super().__init__()
        self.storage_policy = memory if isinstance(memory, LogCLBuffer) else LogCLBuffer(memory, **options)
        self.batch_size, self.batch_size_mem = batch_size, batch_size_mem
        self.task_balanced_dataloader = task_balanced_dataloader

    @property
    def memory(self) -> Memory | None:
        """The memory; None before the first experience of a new one."""
        return self.storage_policy.memory

    def before_training_exp(
        self,
        strategy: Any,
        num_workers: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        **kwargs: Any,
    ) -> None:
        """Replay beside the experience, if there is something to replay."""
        self.storage_policy.pre_adapt(strategy, strategy.experience)
        buffer = self.storage_policy.buffer
        if not len(buffer):
            return
        if self.task_balanced_dataloader and not hasattr(buffer, "targets_task_labels"):
            raise BadInput("this benchmark has no task labels; leave task_balanced_dataloader out")
        passed_on = ("persistent_workers", "pin_memory")
        strategy.dataloader = ReplayDataLoader(
            strategy.adapted_dataset,
            buffer,
            oversample_small_tasks=True,
            batch_size=strategy.train_mb_size if self.batch_size is None else self.batch_size,
            batch_size_mem=strategy.train_mb_size if self.batch_size_mem is None else self.batch_size_mem,
            task_balanced_dataloader=self.task_balanced_dataloader,
            num_workers=num_workers,
            shuffle=shuffle,
            drop_last=drop_last,
            **{name: kwargs[name] for name in passed_on if name in kwargs},
        )

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Absorb the experience."""
        del kwargs
        self.storage_policy.post_adapt(strategy, strategy.experience)
