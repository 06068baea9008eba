"""Local models of a task that is not committed yet, kept in the file so that a crash does not lose them.

They belong to one task on one state of the memory: absorbed again, it goes on with them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from logcl.allocation import Slot
from logcl.core.errors import Damaged
from logcl.core.inputs import Label
from logcl.core.settings import Frozen
from logcl.memory.local_model import LocalModel
from logcl.nn import blobs


class About(Frozen):
    """What staged work says of itself."""

    task: str


@dataclass(frozen=True)
class Staged:
    """A local model, fitted, and how the fit reordered its samples (see `LocalModel.fit`)."""

    task: str
    """`task_digest` of the task it was fitted for."""
    model: LocalModel
    order: NDArray[np.intp]

    @property
    def slot(self) -> Slot:
        """Where it belongs."""
        return self.model.slot

    def to_bytes(self) -> bytes:
        """The blob that `from_bytes` reads."""
        model = np.frombuffer(self.model.to_bytes(), np.uint8).copy()
        order = self.order.astype(np.int64)
        tensors = {"model": torch.from_numpy(model), "order": torch.from_numpy(order)}
        return blobs.pack(About(task=self.task), tensors)

    @staticmethod
    def from_bytes(blob: bytes, name: str) -> Staged:
        """Read a blob; `name` is what messages call it."""
        about, tensors = blobs.unpack(blob, About, name)
        if tensors.keys() != {"model", "order"} or tensors["model"].dtype != torch.uint8:
            raise Damaged(f"{name} is not staged work")
        model = LocalModel.from_bytes(tensors["model"].numpy().tobytes(), name)
        order = tensors["order"]
        if order.dtype != torch.int64 or not order.sort().values.equal(torch.arange(model.slot.samples)):
            raise Damaged(f"{name} has samples in no order")
        return Staged(about.task, model, order.numpy().astype(np.intp))


def task_digest(before: str, x: NDArray[np.uint8], y: NDArray[np.int64], classes: Sequence[Label]) -> str:
    """Stands for a task (images, class numbers, classes) on the memory whose digest is `before`."""
    shape = json.dumps([before, x.shape, list(classes)]).encode()
    digest = hashlib.sha256(shape)
    digest.update(np.ascontiguousarray(x).data)
    digest.update(np.ascontiguousarray(y).data)
    return digest.hexdigest()
