"""Raw samples under a budget: what the methods with a buffer keep."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor

from logcl.core.errors import BadSettings
from logcl.methods.parts.protocol import Problem, State
from logcl.methods.parts.solver import label_type

_UNITS = {"": 1.0, "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}


def check_budget(budget: str) -> str:
    """The budget itself, or an error that says how to write one."""
    match = _parsed(budget)
    if match is None or float(match["number"]) <= 0:
        raise BadSettings(
            f"the budget {budget!r} is not understood; write samples (2000), samples a class (20/class) or "
            "bytes (6.4MB, 500kB, 1000B)"
        )
    return budget


def capacity(budget: str, problem: Problem, kept: torch.dtype = torch.uint8) -> int:
    """How many samples a budget allows, at least one: "2000", "20/class" of all classes, or bytes, "6.4MB".

    Bytes are divided by what a sample takes: its pixels, and its label in the fewest whole bytes.
    """
    match = _parsed(check_budget(budget))
    assert match is not None
    number = float(match["number"])
    if match["unit"] == "/class":
        number *= len(problem.classes)
    elif match["unit"]:
        sample = kept.itemsize * math.prod(problem.settings.image_shape)
        number *= _UNITS[match["unit"]] / (sample + label_type(len(problem.classes)).itemsize)
    if number < 1:
        raise BadSettings(f"the budget {budget} does not even hold one sample; give more")
    return int(number)


def _parsed(budget: str) -> re.Match[str] | None:
    return re.fullmatch(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>/class|B|kB|KB|MB|GB|)", budget.strip())


class Exemplars:
    """Up to `capacity` samples: images in grey levels, 0 to 255, kept as `kind`, and class numbers."""

    def __init__(self, problem: Problem, kind: torch.dtype = torch.uint8) -> None:
        self.capacity = capacity(problem.budget, problem, kind)
        self.x = torch.empty((0, *problem.settings.image_shape), dtype=kind)
        self.y = torch.empty(0, dtype=torch.int64)
        self.offered = 0
        """Samples seen so far, kept or not."""
        self._labels = label_type(len(problem.classes))

    def __len__(self) -> int:
        return len(self.y)

    def reservoir(self, x: Tensor, y: Tensor) -> None:
        """Offer samples: each one seen so far is kept with the same chance (Vitter 1985)."""
        free = min(self.capacity - len(self), len(y))
        if free > 0:
            self.append(x[:free], y[:free])
        numbers = torch.arange(self.offered + free + 1, self.offered + len(y) + 1)
        self.offered += len(y)
        places = (torch.rand(len(numbers)) * numbers).long()
        kept = places < self.capacity
        self.replace(places[kept], x[free:][kept], y[free:][kept])

    def append(self, x: Tensor, y: Tensor) -> None:
        """Keep these as well."""
        self.x, self.y = torch.cat([self.x, x]), torch.cat([self.y, y])

    def replace(self, places: Tensor, x: Tensor, y: Tensor) -> None:
        """Put samples in the place of others; of two for one place, the later one stays."""
        last = {int(place): row for row, place in enumerate(places)}
        rows = torch.tensor(list(last.values()), dtype=torch.int64)
        places = torch.tensor(list(last), dtype=torch.int64)
        self.x[places], self.y[places] = x[rows].to(self.x.dtype), y[rows]

    def keep(self, rows: Tensor) -> None:
        """Keep only these."""
        self.x, self.y = self.x[rows], self.y[rows]

    def draw(self, count: int) -> Tensor:
        """Rows of up to `count` different samples, evenly drawn."""
        return torch.randperm(len(self))[:count]

    def state(self) -> State:
        """Images, labels in the fewest whole bytes, and how many samples were offered."""
        return {
            "exemplars.x": self.x,
            "exemplars.y": self.y.to(self._labels),
            "exemplars.offered": torch.tensor(self.offered),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.x, self.y = state["exemplars.x"].clone(), state["exemplars.y"].long()
        self.offered = int(state["exemplars.offered"])
