"""Samples on their way into a local model or out of it, and the history of their encodings. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field, model_validator

from logcl.allocation import Slot
from logcl.core.descriptions import described
from logcl.core.settings import MOST_SAMPLES, Frozen

RAW = -1
"""Generation of samples that have not been encoded yet."""
_BY_ERRORS = -2
_MOST_GENERATIONS = 64  # a sample is re-encoded once per level at most


@dataclass(frozen=True)
class Run:
    """Consecutive samples with one history.

    `errors[k]` is the mean squared error (pixels in [0, 1]) that encoding number k added, measured against
    what that encoding was given: raw images for k = 0, later what was stored before. Replaying and fitting
    again is a new generation; coarsening adds an error without one.
    """

    count: int
    errors: Annotated[tuple[float, ...], FailFast()] = ()
    generation: Annotated[int, Field(ge=RAW, lt=_MOST_GENERATIONS)] = _BY_ERRORS
    """How often these samples have been re-encoded from their own replay; -1 while they are raw."""

    def __post_init__(self) -> None:
        if self.generation == _BY_ERRORS:  # up to format 3 every error was a generation
            object.__setattr__(self, "generation", len(self.errors) - 1)
        if self.generation >= _MOST_GENERATIONS:
            raise ValueError(f"generation {self.generation} is impossible")


class LevelHistory(Frozen):
    """Which samples a level holds, and their history: its description without its codec."""

    level: int = Field(ge=0, le=62)
    start: int = Field(ge=1, lt=MOST_SAMPLES)
    stop: int = Field(ge=1, lt=MOST_SAMPLES)
    samples: int = Field(ge=1, lt=MOST_SAMPLES)
    """Samples that are still held; fewer than `stop - start + 1` if some were forgotten."""
    classes: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], FailFast()]
    """Class numbers that occur in this level; labels are positions in this tuple."""
    runs: Annotated[tuple[Run, ...], FailFast()]
    """The history of the samples, oldest first."""
    weights: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    """SHA-256 of the blob with the codec's weights; None if there is no such blob."""

    @model_validator(mode="before")
    @classmethod
    def _all_held(cls, data: Any) -> Any:
        # Up to format 3 a level held every sample of its slot.
        if isinstance(data, dict) and "samples" not in data:
            start, stop = data.get("start"), data.get("stop")
            if isinstance(start, int) and isinstance(stop, int):
                return {**data, "samples": stop - start + 1}
        return data

    @staticmethod
    def of(about: Mapping[str, Any], name: str) -> LevelHistory:
        """Read it from the description of a level, whose other fields belong to its codec and labels."""
        fields = {key: value for key, value in about.items() if key in LevelHistory.model_fields}
        if "codec" not in about:  # up to format 3, `weights` was a precision
            fields["weights"] = None
        return described(LevelHistory, fields, name)

    @property
    def slot(self) -> Slot:
        """The level and the sample indices it has room for."""
        return Slot(self.level, self.start, self.stop)


@dataclass(frozen=True)
class Samples:
    """Images (n, C, H, W) as uint8, class numbers (n,), sample indices (n,), and runs that add up to n."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    indices: NDArray[np.int64]
    """Ascending; there may be gaps where samples are no longer held."""
    runs: tuple[Run, ...]

    def __len__(self) -> int:
        return len(self.y)

    def between(self, first: int, last: int) -> Samples:
        """Those with sample indices from `first` to `last`."""
        start, stop = np.searchsorted(self.indices, [first, last + 1]).tolist()
        runs = selected(self.runs, np.arange(start, stop))
        return Samples(self.x[start:stop], self.y[start:stop], self.indices[start:stop], runs)


def raw(x: NDArray[np.uint8], y: NDArray[np.int64], first: int = 1) -> Samples:
    """Samples that have never been encoded, with consecutive indices from `first` on."""
    return Samples(x, y, np.arange(first, first + len(y)), (Run(len(y)),) if len(y) else ())


def concatenate(parts: Sequence[Samples]) -> Samples:
    """All parts, one after the other; at least one."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return Samples(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.indices for part in parts]),
        tuple(run for part in parts for run in part.runs),
    )


def selected(runs: Sequence[Run], rows: NDArray[np.integer[Any]]) -> tuple[Run, ...]:
    """The runs of some samples only; `rows` ascending."""
    ends = np.cumsum([run.count for run in runs])
    counts = np.bincount(np.searchsorted(ends, rows, side="right"), minlength=len(runs))
    return tuple(
        Run(int(count), run.errors, run.generation) for run, count in zip(runs, counts, strict=True) if count
    )


def encoded(runs: Sequence[Run], errors: NDArray[np.floating], *, coarsened: bool = False) -> tuple[Run, ...]:
    """The runs after one more encoding; `errors` (n,) is what it added to each sample.

    Neighbours of equal history length become one run with their mean history, so that a level has about as
    many runs as it has distinct sources. `coarsened`: not a new generation.
    """
    added = np.split(errors, np.cumsum([run.count for run in runs])[:-1]) if runs else []
    longer = [
        Run(run.count, (*run.errors, float(mine.mean())), run.generation + (not coarsened))
        for run, mine in zip(runs, added, strict=True)
    ]
    return joined(longer)


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Neighbours of equal history length as one run with their mean history."""
    return tuple(_mean_run(list(group)) for _, group in groupby(runs, key=_history))


def generations(runs: Sequence[Run]) -> NDArray[np.int64]:
    """How often each sample has been re-encoded, oldest sample first; -1 if it is raw."""
    return np.repeat([run.generation for run in runs], [run.count for run in runs])


def by_generation(runs: Sequence[Run]) -> tuple[Run, ...]:
    """One run per generation (and number of encodings), youngest first, with its samples' mean history."""
    return joined(sorted(runs, key=_history))


def added_errors(runs: Sequence[Run]) -> tuple[float, ...]:
    """What encoding number 0, 1, ... added: means over the samples that went through it."""
    most = max((len(run.errors) for run in runs), default=0)
    sums, counts = [0.0] * most, [0] * most
    for run in runs:
        for number, error in enumerate(run.errors):
            sums[number] += run.count * error
            counts[number] += run.count
    return tuple(total / count for total, count in zip(sums, counts, strict=True))


def _history(run: Run) -> tuple[int, int]:
    return run.generation, len(run.errors)


def _mean_run(runs: list[Run]) -> Run:
    counts = [run.count for run in runs]
    history = np.average([run.errors for run in runs], axis=0, weights=counts)
    return Run(sum(counts), tuple(float(error) for error in history), runs[0].generation)
