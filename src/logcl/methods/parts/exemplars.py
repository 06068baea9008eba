"""Raw samples under a budget: the buffer of every method that has one."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor

from logcl.core.errors import BadSettings
from logcl.methods.parts.protocol import Problem, State
from logcl.methods.parts.solver import label_type

_BUDGET = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>/class|B|kB|KB|MB|GB|)")
_UNITS = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}


def check_budget(budget: str) -> str:
    """The budget unchanged; raises `BadSettings` if it cannot be parsed."""
    _parsed(budget)
    return budget


def capacity(budget: str, problem: Problem, pixels: torch.dtype = torch.uint8) -> int:
    """The number of samples that a budget allows: "2000", "20/class" (times all classes) or "6.4MB".

    A sample takes the bytes of its pixels, stored as `pixels`, and of its label in the smallest integer type.
    """
    number, unit = _parsed(budget)
    if unit == "/class":
        number *= len(problem.classes)
    elif unit:
        sample = pixels.itemsize * math.prod(problem.settings.image_shape)
        number *= _UNITS[unit] / (sample + label_type(len(problem.classes)).itemsize)
    if number < 1:
        raise BadSettings(f"the budget {budget} does not even hold one sample; raise it")
    return int(number)


def _parsed(budget: str) -> tuple[float, str]:
    match = _BUDGET.fullmatch(budget.strip())
    if match is None or float(match["number"]) <= 0:
        raise BadSettings(
            f"the budget {budget!r} is not valid; give a number of samples (2000), samples per class "
            "(20/class) or bytes (6.4MB, 500kB, 1000B)"
        )
    return float(match["number"]), match["unit"]


class Exemplars:
    """Up to `capacity` samples: images (n, C, H, W) with values 0 to 255, and class numbers (n,)."""

    def __init__(self, problem: Problem, pixels: torch.dtype = torch.uint8) -> None:
        self.capacity = capacity(problem.budget, problem, pixels)
        self.x = torch.empty((0, *problem.settings.image_shape), dtype=pixels)
        self.y = torch.empty(0, dtype=torch.int64)
        self.offered = 0
        """Samples offered to `reservoir` so far, kept or not."""
        self._label_type = label_type(len(problem.classes))

    def __len__(self) -> int:
        return len(self.y)

    def reservoir(self, x: Tensor, y: Tensor) -> None:
        """Reservoir sampling (Vitter 1985): every sample offered so far is kept with equal probability."""
        free = min(self.capacity - len(self), len(y))
        if free > 0:
            self.append(x[:free], y[:free])
        numbers = torch.arange(self.offered + free + 1, self.offered + len(y) + 1)
        self.offered += len(y)
        places = (torch.rand(len(numbers)) * numbers).long()
        kept = places < self.capacity
        self.replace(places[kept], x[free:][kept], y[free:][kept])

    def append(self, x: Tensor, y: Tensor) -> None:
        """Add samples without checking the capacity."""
        self.x, self.y = torch.cat([self.x, x]), torch.cat([self.y, y])

    def replace(self, places: Tensor, x: Tensor, y: Tensor) -> None:
        """Overwrite the rows `places`; if a row occurs twice, the later sample wins."""
        last = {int(place): row for row, place in enumerate(places)}
        rows = torch.tensor(list(last.values()), dtype=torch.int64)
        places = torch.tensor(list(last), dtype=torch.int64)
        self.x[places], self.y[places] = x[rows].to(self.x.dtype), y[rows]

    def keep(self, rows: Tensor) -> None:
        """Drop all other rows."""
        self.x, self.y = self.x[rows], self.y[rows]

    def draw(self, count: int) -> Tensor:
        """Rows of up to `count` different samples, drawn uniformly."""
        return torch.randperm(len(self))[:count]

    def state(self) -> State:
        """Images, labels in the smallest integer type, and the number of samples offered."""
        return {
            "exemplars.x": self.x,
            "exemplars.y": self.y.to(self._label_type),
            "exemplars.offered": torch.tensor(self.offered),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.x, self.y = state["exemplars.x"].clone(), state["exemplars.y"].long()
        self.offered = int(state["exemplars.offered"])
