"""Every raw sample, for the bounds that may keep them all."""

from __future__ import annotations

import torch
from torch import Tensor

from logcl.methods.parts.protocol import Problem, State
from logcl.methods.parts.solver import label_type, tensors
from logcl.streams import Task


class RawSamples:
    """All samples so far: uint8 images and class numbers."""

    def __init__(self, problem: Problem) -> None:
        self._x = [torch.empty((0, *problem.settings.image_shape), dtype=torch.uint8)]
        self._y = [torch.empty(0, dtype=torch.int64)]
        self._label_type = label_type(len(problem.classes))

    def append(self, task: Task) -> None:
        """Add the samples of a task."""
        x, y = tensors(task)
        self._x.append(x)
        self._y.append(y)

    def everything(self) -> tuple[Tensor, Tensor]:
        """Images and class numbers, oldest first."""
        self._x, self._y = [torch.cat(self._x)], [torch.cat(self._y)]
        return self._x[0], self._y[0]

    def state(self) -> State:
        """Images, and labels in the smallest integer type."""
        x, y = self.everything()
        return {"raw.x": x, "raw.y": y.to(self._label_type)}

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self._x, self._y = [state["raw.x"].clone()], [state["raw.y"].long()]
