"""The result of an experiment: the one document that all tables, figures and reports are made from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator, model_validator

from logcl.core.errors import BadInput, CannotWrite
from logcl.core.settings import MOST_SAMPLES, Frozen
from logcl.core.text import printable
from logcl.memory.diagnostics import Trap
from logcl.memory.settings import Settings

Count = Annotated[int, Field(ge=0, le=MOST_SAMPLES)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = dict[str, Annotated[float, Field(ge=0)]]
Row = tuple[Share | None, ...] | None
Scalar = str | bool | int | float | None

ERROR_BINS: NDArray[np.float64] = np.logspace(-6, 0, 61)
"""Bin edges of the histograms of reconstruction errors: ten bins per decade."""


_ILLEGIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def legible(value: Any) -> Any:
    """Plain data with all characters escaped, as by `repr`, that XML, UTF-8 or a terminal cannot show.

    Raises `ValueError` for numbers that are not finite or need more than 64 bits.
    """
    if isinstance(value, str):
        return _ILLEGIBLE.sub(lambda found: repr(found[0])[1:-1], value)
    if isinstance(value, dict):
        return {legible(name): legible(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(legible, value))
    if isinstance(value, int | float) and not abs(value) < 2**63:
        raise ValueError("a number is not finite or needs more than 64 bits")
    return value


class GenerationError(Frozen):
    """Reconstruction error of the samples of one generation."""

    generation: int = Field(ge=-1)
    """0 = encoded once, from raw data; -1 = still raw, in the buffer."""
    samples: Count
    mse: Share
    """Mean squared error, pixels in [0, 1]."""
    histogram: tuple[Count, ...] = ()
    """Samples per bin of `ERROR_BINS`; errors outside the range count in the first or last bin."""

    @field_validator("histogram")
    @classmethod
    def _all_bins(cls, histogram: tuple[int, ...]) -> tuple[int, ...]:
        if len(histogram) not in (0, len(ERROR_BINS) - 1):
            raise ValueError(f"a histogram has {len(ERROR_BINS) - 1} bins, not {len(histogram)}")
        return histogram

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

    samples: Count
    """Samples of this task."""
    trained: Count
    """Samples that this task fitted generative models to, replayed ones included."""
    replayed: Count
    """How many of those were replayed from models that have been replaced."""
    memory_bytes: Count
    models: Count = 0
    """Generative models afterwards."""
    accuracy: Share | None = None
    """On the test samples of all classes seen so far; None if not evaluated after this task."""
    seconds: Seconds = Field(default_factory=dict)
    """Time spent on this task, by phase as in `Result.seconds`."""


class Examples(Frozen):
    """A few samples of one level and generation: originals and replay."""

    level: int = Field(ge=-1, le=62)
    """-1 is the buffer."""
    generation: int = Field(ge=-1)
    arrival: tuple[Count, ...] = Field(min_length=1)
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
    options: dict[str, Scalar | list[Scalar] | dict[str, Scalar | list[Scalar]]] = Field(default_factory=dict)
    """The method's own hyperparameters."""
    budget: str | None = None
    """The most that a method with a buffer may keep."""
    classes: tuple[str, ...] = Field(min_length=1)
    task_classes: tuple[tuple[int, ...], ...]
    tasks: tuple[TaskRecord, ...] = Field(min_length=1)
    accuracy_matrix: tuple[Row, ...]
    """Row t: after task t, accuracy on the test samples of each task's classes (None for a task without any).

    A row is None if the method was not evaluated after that task."""
    final_accuracy: Share
    """On the whole test set, after the last task."""
    forgetting: float | None
    """Best earlier accuracy minus final accuracy, averaged over all tasks but the last.

    None unless evaluated after every task."""
    confusion: tuple[tuple[int, int, int], ...] = ()
    """(true class, predicted class, test samples) after the last task, for pairs that occurred."""
    memory_bytes: Count
    classifier_bytes: Count | None = None
    """The classifier beside the memory, which can be retrained; 0 if it counts as what the method keeps, None
    in results of earlier versions."""
    raw_bytes: int = Field(ge=1, le=MOST_SAMPLES)
    """Size of all samples seen, as uint8."""
    seconds: Seconds
    """By phase: `absorb` (memory), `train` (classifier), `other` (prediction, diagnostics, bookkeeping)."""
    reconstruction: tuple[GenerationError, ...]
    examples: tuple[Examples, ...] = ()
    max_generation: Count | None
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

    @model_validator(mode="before")
    @classmethod
    def _legible(cls, data: Any) -> Any:
        """Names of classes and commands come from users, and files from anywhere."""
        return legible(data)

    @model_validator(mode="after")
    def _consistent(self) -> Result:
        tasks, classes = len(self.tasks), range(len(self.classes))
        rows = [row for row in self.accuracy_matrix if row is not None]
        if {len(self.task_classes), len(self.accuracy_matrix), *map(len, rows)} != {tasks}:
            raise ValueError(f"task_classes and accuracy_matrix do not have {tasks} entries, one per task")
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise ValueError(f"the tasks have {self.samples} samples")
        pairs = [pair for *pair, _ in self.confusion]
        if not all(k in classes for numbers in (*self.task_classes, *pairs) for k in numbers):
            raise ValueError(f"task_classes or confusion has a class that is not one of {len(classes)}")
        if len(set(map(tuple, pairs))) < len(pairs) or any(n < 1 for *_, n in self.confusion):
            raise ValueError("confusion has a pair of classes twice, or one that did not occur")
        generations = [error.generation for error in self.reconstruction if error.samples]
        if generations != sorted({error.generation for error in self.reconstruction}):
            raise ValueError("the generations of reconstruction are empty or not in ascending order")
        return self

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
    def file_bytes(self) -> int | None:
        """Memory and classifier; None if the classifier's size is not known."""
        return None if self.classifier_bytes is None else self.memory_bytes + self.classifier_bytes

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
        if not path.is_file():  # reading a named pipe would wait forever
            raise BadInput(f"{path} is a folder or a special file; remove it or name result files")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    except RecursionError as error:
        raise BadInput(f"{path} is nested too deeply; remove it or repeat the run") from error
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{path} is not valid JSON ({error}); remove it or repeat the run") from error


def _validated(path: Path, document: Any) -> Result:
    try:
        return Result.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        problem = printable(f"{where}: {first['msg'].removeprefix('Value error, ')}")
    except RecursionError:
        problem = "it is nested too deeply"
    raise BadInput(f"{path} is not the result of an experiment ({problem}); give a result.json")


def make_folder(folder: Path) -> None:
    """Create a folder for results or reports, with its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(
            f"the folder {folder} cannot be created ({error.strerror}); choose another one"
        ) from error
