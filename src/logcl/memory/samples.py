"""Samples on their way into a local model or out of it, each with the history of its encodings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast


@dataclass(frozen=True)
class Run:
    """Consecutive samples with one history.

    `errors[g]` is the mean squared error (pixels in [0, 1]) that their encoding number g added, measured
    against what that fit was given: the raw images for g = 0, replayed ones after that.
    """

    count: int
    errors: Annotated[tuple[float, ...], FailFast()] = ()

    @property
    def generation(self) -> int:
        """How often these samples have been re-encoded; -1 while they are raw."""
        return len(self.errors) - 1


@dataclass(frozen=True)
class Samples:
    """Images (n, C, H, W) as uint8, class numbers (n,) as int64, and runs whose counts add up to n."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    runs: tuple[Run, ...]

    def __len__(self) -> int:
        return len(self.y)

    def part(self, start: int, stop: int) -> Samples:
        """Samples `start` (0-based) up to but not including `stop`."""
        runs = []
        first = 0
        for run in self.runs:
            overlap = min(stop, first + run.count) - max(start, first)
            if overlap > 0:
                runs.append(Run(overlap, run.errors))
            first += run.count
        return Samples(self.x[start:stop], self.y[start:stop], tuple(runs))


def raw(x: NDArray[np.uint8], y: NDArray[np.int64]) -> Samples:
    """Samples that have never been encoded."""
    return Samples(x, y, (Run(len(y)),) if len(y) else ())


def concatenate(parts: Sequence[Samples]) -> Samples:
    """All parts, one after the other; at least one."""
    if len(parts) == 1:
        return parts[0]
    return Samples(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        tuple(run for part in parts for run in part.runs),
    )


def encoded(runs: Sequence[Run], errors: NDArray[np.floating]) -> tuple[Run, ...]:
    """The runs after one more encoding; `errors` (n,) is what it added to each sample.

    Neighbours of equal generation become one run with their mean history, so that a level holds about as
    many runs as it has distinct sources.
    """
    ends = np.cumsum([run.count for run in runs])
    longer = [
        Run(run.count, (*run.errors, float(errors[end - run.count : end].mean())))
        for run, end in zip(runs, ends, strict=True)
    ]
    return tuple(_mean_run(list(group)) for _, group in groupby(longer, key=lambda run: run.generation))


def generations(runs: Sequence[Run]) -> NDArray[np.int64]:
    """How often each sample has been re-encoded, oldest sample first; -1 if it is raw."""
    return np.repeat([run.generation for run in runs], [run.count for run in runs])


def by_generation(runs: Sequence[Run]) -> tuple[Run, ...]:
    """One run for each generation, youngest first, with the mean history of its samples."""
    aged = sorted(runs, key=lambda run: run.generation)
    return tuple(_mean_run(list(group)) for _, group in groupby(aged, key=lambda run: run.generation))


def added_errors(runs: Sequence[Run]) -> tuple[float, ...]:
    """What encoding number 0, 1, ... added, each a mean over the samples that went through it."""
    most = max((len(run.errors) for run in runs), default=0)
    through = [[run for run in runs if len(run.errors) > number] for number in range(most)]
    return tuple(
        sum(run.count * run.errors[number] for run in mine) / sum(run.count for run in mine)
        for number, mine in enumerate(through)
    )


def _mean_run(runs: list[Run]) -> Run:
    counts = [run.count for run in runs]
    history = np.average([run.errors for run in runs], axis=0, weights=counts)
    return Run(sum(counts), tuple(float(error) for error in history))
