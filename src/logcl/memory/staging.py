"""Fits of a task that is not committed yet, kept in the file so that a crash does not lose them.

They belong to one task on one state of the memory. When that task is absorbed again, it resumes with them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from logcl.allocation import Slot
from logcl.core.errors import Busy, Damaged
from logcl.core.inputs import Label
from logcl.core.settings import Frozen
from logcl.memory.file.header import Header
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.fitting import Fit
from logcl.nn import blobs

_WORTH_STAGING = 0.5
"""Seconds of fitting that are worth a sync of the disk, which takes some hundredths of a second."""


class About(Frozen):
    """What a staged fit says about itself."""

    task: str
    slot: tuple[int, int, int]
    has_weights: bool


@dataclass(frozen=True)
class Staging:
    """The staged fits of one task in one file."""

    file: MemoryFile
    before: Header
    """The memory that the task is absorbed into; no other one that may take its place is written to."""
    task: str
    """`task_digest` of the task."""

    def load(self, slots: Collection[Slot]) -> dict[Slot, Fit]:
        """What was fitted of this task before it was interrupted; fits of any other task are dropped."""
        found = {}
        staged = self.file.staged()
        for name, blob in staged.items():
            try:
                task, fit = from_bytes(blob, f"{self.file.path}: staged {name}")
            except Damaged:
                continue  # it is fitted again, and `verify` reports it
            if task == self.task and fit.slot in slots:
                found[fit.slot] = fit
        if staged and not found:
            self.file.drop_staged(self.before)
        return found

    def keep(self, fit: Fit) -> None:
        """Stage a fit until the commit, if it took some time."""
        if fit.seconds < _WORTH_STAGING:
            return
        try:
            self.file.stage(self.before, f"level-{fit.slot.level}", to_bytes(self.task, fit))
        except Busy:
            return  # a reader holds the file; without this only a crash would cost time


def to_bytes(task: str, fit: Fit) -> bytes:
    """The blob that `from_bytes` reads."""
    about = About(
        task=task, slot=(fit.slot.level, fit.slot.start, fit.slot.stop), has_weights=fit.has_weights
    )
    return blobs.pack(
        about,
        {
            "level": torch.from_numpy(np.frombuffer(fit.level, np.uint8).copy()),
            "codec": torch.from_numpy(np.frombuffer(fit.codec, np.uint8).copy()),
            "order": torch.from_numpy(fit.order.astype(np.int64)),
        },
    )


def from_bytes(blob: bytes, name: str) -> tuple[str, Fit]:
    """The task and its fit, checked; `name` is what error messages call it."""
    about, tensors = blobs.unpack(blob, About, name)
    types = {key: value.dtype for key, value in tensors.items()}
    if types != {"level": torch.uint8, "codec": torch.uint8, "order": torch.int64}:
        raise Damaged(f"{name} is not a staged fit")
    order = tensors["order"]
    fit = Fit(
        Slot(*about.slot), tensors["level"].numpy().tobytes(), tensors["codec"].numpy().tobytes(),
        about.has_weights, order.numpy().astype(np.intp),
    )  # fmt: skip
    model = fit.model(name)
    if model.slot != fit.slot or (model.about.weights is not None) != fit.has_weights:
        raise Damaged(f"{name} holds another level than it claims")
    if not order.sort().values.equal(torch.arange(len(model))):
        raise Damaged(f"{name} has an order that is no permutation")
    return about.task, fit


def task_digest(before: str, x: NDArray[np.uint8], y: NDArray[np.int64], classes: Sequence[Label]) -> str:
    """A digest of a task (images, class numbers, classes) on the memory with the digest `before`."""
    shape = json.dumps([before, x.shape, list(classes)]).encode()
    digest = hashlib.sha256(shape)
    digest.update(np.ascontiguousarray(x).data)
    digest.update(np.ascontiguousarray(y).data)
    return digest.hexdigest()
