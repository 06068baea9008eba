"""Raw samples: all of them for the bounds, or as many as a budget allows for methods with a buffer."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor

from logcl.core.errors import BadSettings
from logcl.methods.parts.protocol import Part, Problem

_BUDGET = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>/class|B|kB|KB|MB|GB|)\s*")
_UNITS = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}


def check_budget(budget: str) -> str:
    """The budget unchanged; raises `BadSettings` if it cannot be parsed."""
    match = _BUDGET.fullmatch(budget)
    if match is None or float(match["number"]) <= 0:
        raise BadSettings(
            f"the budget {budget!r} is not valid; give a number of samples (2000), samples per class "
            "(20/class) or bytes (6.4MB, 500kB, 1000B)"
        )
    return budget


def capacity(budget: str, problem: Problem, pixels: torch.dtype = torch.uint8) -> int:
    """The number of samples that a budget allows: "2000", "20/class" (times all classes) or "6.4MB".

    A sample takes the bytes of its pixels, stored as `pixels`, and of its label in the smallest integer type.
    """
    digits, unit = _BUDGET.findall(check_budget(budget))[0]
    number = float(digits)
    if unit == "/class":
        number *= len(problem.classes)
    elif unit:
        sample = pixels.itemsize * math.prod(problem.settings.image_shape)
        number *= _UNITS[unit] / (sample + label_type(len(problem.classes)).itemsize)
    if number < 1:
        raise BadSettings(f"the budget {budget} does not even hold one sample; raise it")
    return int(number)


def label_type(classes: int) -> torch.dtype:
    """The smallest integer type for the labels of this many classes."""
    return torch.uint8 if classes <= 256 else torch.int16 if classes <= 32_768 else torch.int32


class RawSamples(Part):
    """Samples: images `x` (n, C, H, W) with values 0 to 255, and class numbers `y` (n,)."""

    kept: tuple[str, ...] = ("x", "labels")

    def __init__(self, problem: Problem, pixels: torch.dtype = torch.uint8) -> None:
        self.x = torch.empty((0, *problem.settings.image_shape), dtype=pixels)
        self.labels = torch.empty(0, dtype=label_type(len(problem.classes)))
        """The class numbers in the smallest integer type."""

    @property
    def y(self) -> Tensor:
        """The class numbers as int64."""
        return self.labels.long()

    def __len__(self) -> int:
        return len(self.labels)

    def append(self, x: Tensor, y: Tensor) -> None:
        """Add samples, whatever the capacity."""
        self.x, self.labels = torch.cat([self.x, x]), torch.cat([self.labels, y.to(self.labels.dtype)])


class Exemplars(RawSamples):
    """Up to `capacity` samples."""

    kept = (*RawSamples.kept, "offered")

    def __init__(self, problem: Problem, pixels: torch.dtype = torch.uint8) -> None:
        super().__init__(problem, pixels)
        self.capacity = capacity(problem.budget, problem, pixels)
        self.offered = 0
        """Samples offered to `reservoir` so far, kept or not."""

    def reservoir(self, x: Tensor, y: Tensor) -> None:
        """Reservoir sampling (Vitter 1985): every sample offered so far is kept with equal probability."""
        free = min(self.capacity - len(self), len(y))
        self.append(x[:free], y[:free])
        numbers = torch.arange(self.offered + free + 1, self.offered + len(y) + 1)
        self.offered += len(y)
        places = (torch.rand(len(numbers)) * numbers).long()
        kept = places < self.capacity
        self.replace(places[kept], x[free:][kept], y[free:][kept])

    def replace(self, places: Tensor, x: Tensor, y: Tensor) -> None:
        """Overwrite the rows `places`; if a row occurs twice, the later sample wins."""
        last = {int(place): row for row, place in enumerate(places)}
        rows = torch.tensor(list(last.values()), dtype=torch.int64)
        places = torch.tensor(list(last), dtype=torch.int64)
        self.x[places], self.labels[places] = x[rows].to(self.x.dtype), y[rows].to(self.labels.dtype)

    def keep(self, rows: Tensor) -> None:
        """Drop all other rows."""
        self.x, self.labels = self.x[rows], self.labels[rows]

    def draw(self, count: int) -> Tensor:
        """Rows of up to `count` different samples, drawn uniformly."""
        return torch.randperm(len(self))[:count]
