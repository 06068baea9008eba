"""What an experiment found: the one document that tables, figures and reports are made from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from logcl.core.errors import BadInput
from logcl.core.settings import Frozen
from logcl.memory.diagnostics import Trap
from logcl.memory.settings import Settings

Row = tuple[float | None, ...] | None

ERROR_BINS: NDArray[np.float64] = np.logspace(-6, 0, 61)
"""Edges of the bins that reconstruction errors are counted in: ten to a decade."""


class GenerationError(Frozen):
    """How far replay is from the originals, for the samples that were re-encoded equally often."""

    generation: int
    """0 = encoded once, from raw data; -1 = still raw, in the buffer."""
    samples: int
    mse: float
    """Mean squared error, pixels in [0, 1]."""
    histogram: tuple[int, ...] = ()
    """Samples by their error, in `ERROR_BINS`; what is outside counts in the first or last bin."""


class TaskRecord(Frozen):
    """The state after one task."""

    samples: int
    """Samples of this task."""
    trained: int
    """Samples that went through a generative model's fit because of it, new ones included."""
    replayed: int
    """How many of those were replayed from models that are gone now."""
    memory_bytes: int
    models: int = 0
    """Generative models alive afterwards."""
    accuracy: float | None = None
    """On the test samples of all classes seen so far; None where the method was not examined."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """What this task took, by phase, as `Result.seconds`."""


class Examples(Frozen):
    """Some samples of one level and generation, as they were and as they are replayed."""

    level: int
    """-1 is the buffer."""
    generation: int
    arrival: tuple[int, ...]
    """When the samples came, counted from 1."""
    originals: str
    """A PNG, the images side by side, in base64."""
    replayed: str


class Result(Frozen):
    """Everything an experiment found, with what is needed to repeat it."""

    stream: str
    subset: str | None = None
    """Which part of the data set was used; None for all of it."""
    method: str
    seed: int
    evaluate: str
    settings: Settings
    options: dict[str, Any] = Field(default_factory=dict)
    """The method's own hyperparameters."""
    budget: str | None = None
    """What a method with a buffer was allowed to keep."""
    classes: tuple[str, ...]
    task_classes: tuple[tuple[int, ...], ...]
    tasks: tuple[TaskRecord, ...]
    accuracy_matrix: tuple[Row, ...]
    """Row t: after task t, accuracy on the test samples of each task's classes (None for a task without any).

    A row is None where the method was not examined."""
    final_accuracy: float
    """On the whole test set, after the last task."""
    forgetting: float | None
    """Best earlier accuracy minus final accuracy, mean over all tasks but the last; None if not examined."""
    confusion: tuple[tuple[int, int, int], ...] = ()
    """(true class, predicted class, test samples) after the last task, pairs that occurred."""
    memory_bytes: int
    raw_bytes: int
    """What the samples seen would take as uint8."""
    seconds: dict[str, float]
    """By phase: `absorb` (memory), `train` (classifier), `other` (prediction, diagnostics, bookkeeping)."""
    reconstruction: tuple[GenerationError, ...]
    examples: tuple[Examples, ...] = ()
    max_generation: int | None
    """The lemma's bound for this many samples (LogCL only)."""
    trap: Trap | None = None
    """Whether labels are inferred from distortions; None for methods without levels."""
    versions: dict[str, str]
    hardware: dict[str, str | int]
    commit: str | None = None
    """Of the source that ran, with a + if it had been changed; None if it was no checkout."""
    command: str | None = None
    """What a user would type to repeat it."""
    finished: str


def read(path: Path) -> Result:
    """One result file."""
    try:
        return Result.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise BadInput(f"{path} is no result of an experiment: {where}: {first['msg']}") from error


def find(place: Path) -> Iterator[tuple[Path, Result]]:
    """The result at `place`, or all results in and below that folder, by path; other JSON is passed over.

    So are hidden folders: cells of a grid run in them.
    """
    if not place.exists():
        raise BadInput(f"{place} does not exist; give a result.json or a folder of results")
    for path in [place] if place.is_file() else sorted(place.rglob("*.json")):
        hidden = any(part.startswith(".") for part in path.relative_to(place).parts)
        if place.is_file() or (not hidden and _is_result(path)):
            yield path, read(path)


def _is_result(path: Path) -> bool:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise BadInput(f"{path} is damaged: it is no JSON ({error}); remove it or run it again") from error
    return isinstance(document, dict) and {"final_accuracy", "method", "stream"} <= set(document)
