"""The result of an experiment: the one document that all tables, figures and reports are made from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator

from logcl.core.errors import BadInput, CannotWrite
from logcl.core.settings import Frozen
from logcl.memory.diagnostics import Trap
from logcl.memory.settings import Settings

Row = tuple[float | None, ...] | None

ERROR_BINS: NDArray[np.float64] = np.logspace(-6, 0, 61)
"""Bin edges of the histograms of reconstruction errors: ten bins per decade."""


class GenerationError(Frozen):
    """Reconstruction error of the samples of one generation."""

    generation: int
    """0 = encoded once, from raw data; -1 = still raw, in the buffer."""
    samples: int
    mse: float
    """Mean squared error, pixels in [0, 1]."""
    histogram: tuple[int, ...] = ()
    """Samples per bin of `ERROR_BINS`; errors outside the range count in the first or last bin."""

    @property
    def psnr(self) -> float | None:
        """In dB; None if there is no error."""
        return -10 * math.log10(self.mse) if self.mse else None


def pooled(errors: Sequence[GenerationError]) -> GenerationError:
    """The errors of several generations as if they were one, named after the first."""
    samples = [error.samples for error in errors]
    histograms = [error.histogram for error in errors if error.histogram]
    return GenerationError(
        generation=errors[0].generation if errors else -1,
        samples=sum(samples),
        mse=float(np.average([error.mse for error in errors], weights=samples)) if errors else 0.0,
        histogram=tuple(map(sum, zip(*histograms, strict=True))),
    )


class TaskRecord(Frozen):
    """The state after one task."""

    samples: int
    """Samples of this task."""
    trained: int
    """Samples that this task fitted generative models to, replayed ones included."""
    replayed: int
    """How many of those were replayed from models that have been replaced."""
    memory_bytes: int
    models: int = 0
    """Generative models afterwards."""
    accuracy: float | None = None
    """On the test samples of all classes seen so far; None if not evaluated after this task."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Time spent on this task, by phase as in `Result.seconds`."""


class Examples(Frozen):
    """A few samples of one level and generation: originals and replay."""

    level: int
    """-1 is the buffer."""
    generation: int
    arrival: tuple[int, ...]
    """Sample indices, 1-based in order of arrival."""
    originals: str
    """The images side by side as a PNG, in base64."""
    replayed: str


class Result(Frozen):
    """Everything an experiment measured, and what is needed to repeat it."""

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
    """The most that a method with a buffer may keep."""
    classes: tuple[str, ...]
    task_classes: tuple[tuple[int, ...], ...]
    tasks: tuple[TaskRecord, ...]
    accuracy_matrix: tuple[Row, ...]
    """Row t: after task t, accuracy on the test samples of each task's classes (None for a task without any).

    A row is None if the method was not evaluated after that task."""
    final_accuracy: float
    """On the whole test set, after the last task."""
    forgetting: float | None
    """Best earlier accuracy minus final accuracy, averaged over all tasks but the last.

    None unless evaluated after every task."""
    confusion: tuple[tuple[int, int, int], ...] = ()
    """(true class, predicted class, test samples) after the last task, for pairs that occurred."""
    memory_bytes: int
    raw_bytes: int
    """Size of all samples seen, as uint8."""
    seconds: dict[str, float]
    """By phase: `absorb` (memory), `train` (classifier), `other` (prediction, diagnostics, bookkeeping)."""
    reconstruction: tuple[GenerationError, ...]
    examples: tuple[Examples, ...] = ()
    max_generation: int | None
    """The lemma's bound for this number of samples; None for methods without levels."""
    trap: Trap | None = None
    """Whether labels are inferred from distortions; None for methods without levels."""
    versions: dict[str, str]
    hardware: dict[str, str | int]
    commit: str | None = None
    """Commit of the source code, with a + if it had local changes; None outside a git checkout."""
    command: str | None = None
    """The command that repeats the experiment."""
    finished: str

    @field_validator("subset")
    @classmethod
    def _plain_words(cls, subset: str | None) -> str | None:
        """Results of earlier versions say "20 samples a class"."""
        return subset and subset.replace(" samples a class", " samples per class")

    @property
    def samples(self) -> int:
        """Samples seen over all tasks."""
        return sum(task.samples for task in self.tasks)

    @property
    def has_levels(self) -> bool:
        """Whether the method keeps its samples in levels, as LogCL does."""
        return self.max_generation is not None


def read(path: Path) -> Result:
    """Read one result file, of this or an earlier version."""
    return _validated(path, _document(path))


def find(place: Path) -> Iterator[tuple[Path, Result]]:
    """The result file at `place`, or all result files in and below that folder, sorted by path.

    Other JSON files are skipped, and so are hidden folders: cells of a bench run in them.
    """
    if not place.exists():
        raise BadInput(f"{place} does not exist; give a result.json or a folder of results")
    if place.is_file():
        yield place, read(place)
    for path in sorted(place.rglob("*.json")):
        if not any(part.startswith(".") for part in path.relative_to(place).parts):
            document = _document(path)
            if isinstance(document, dict) and {"final_accuracy", "method", "stream"} <= set(document):
                yield path, _validated(path, document)


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    except ValueError as error:
        raise BadInput(f"{path} is not valid JSON ({error}); remove it or repeat the run") from error


def _validated(path: Path, document: Any) -> Result:
    try:
        return Result.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}"
        raise BadInput(
            f"{path} is not the result of an experiment ({problem}); give a result.json"
        ) from error


def make_folder(folder: Path) -> None:
    """Create a folder for results or reports, with its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(
            f"the folder {folder} cannot be created ({error.strerror}); choose another one"
        ) from error
