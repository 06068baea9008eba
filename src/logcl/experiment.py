"""One experiment: a method learns a stream, task by task, and is examined on the test set.

method × stream → Result
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from logcl import allocation, methods
from logcl.diagnostics import Trap
from logcl.errors import BadInput, CannotWrite
from logcl.files import write_atomically
from logcl.methods import HasLevels, Problem, Replays
from logcl.methods.protocol import Clock
from logcl.progress import Progress, Silent
from logcl.samples import squared_errors
from logcl.settings import USUAL_BUDGET, Frozen, Settings
from logcl.streams import Stream

Evaluate = Literal["every", "final"]
Row = tuple[float | None, ...] | None


class GenerationError(Frozen):
    """How far replay is from the originals, for the samples that were re-encoded equally often."""

    generation: int
    """0 = encoded once, from raw data; -1 = still raw, in the buffer."""
    samples: int
    mse: float
    """Mean squared error, pixels in [0, 1]."""


class TaskRecord(Frozen):
    """The state after one task."""

    samples: int
    """Samples of this task."""
    trained: int
    """Samples that went through a local fit because of it, new ones included (LogCL only)."""
    replayed: int
    """How many of those were replayed from retired levels (LogCL only)."""
    memory_bytes: int


class Result(Frozen):
    """Everything an experiment found, with what is needed to repeat it."""

    stream: str
    method: str
    seed: int
    evaluate: Evaluate
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
    memory_bytes: int
    raw_bytes: int
    """What the samples seen would take as uint8."""
    seconds: dict[str, float]
    """By phase: `absorb` (memory), `train` (classifier), `other` (prediction, diagnostics, bookkeeping)."""
    reconstruction: tuple[GenerationError, ...]
    max_generation: int | None
    """The lemma's bound for this many samples (LogCL only)."""
    trap: Trap | None = None
    """Whether labels are inferred from distortions; None for methods without levels."""
    versions: dict[str, str]
    hardware: dict[str, str | int]
    finished: str


def run(
    stream: Stream,
    method_name: str,
    settings: Settings,
    folder: Path,
    *,
    budget: str = USUAL_BUDGET,
    options: Mapping[str, Any] | None = None,
    evaluate: Evaluate = "every",
    progress: Progress | None = None,
) -> Result:
    """Let a method learn a stream; leaves `result.json` (and LogCL's `memory.logcl`) in `folder`.

    `options` are the method's own hyperparameters, `budget` is what it may keep if it has a buffer.
    """
    progress = progress or Silent()
    clock = Clock()
    if not len(stream.test_y):
        raise BadInput(f"{stream.name} has no test samples: its classes have one sample each; add more")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"the run folder {folder} cannot be made ({error.strerror})") from error
    problem = Problem(settings, stream.classes, folder, budget, progress, clock)
    method = methods.create(method_name, problem, options)
    records: list[TaskRecord] = []
    matrix: list[Row] = []
    predicted = np.empty(0, dtype=np.int64)
    seen = 0
    with progress.track(f"{stream.name}, {method_name}, seed {settings.seed}", len(stream)) as advance:
        for number, task in enumerate(stream, start=1):
            with clock("learn"):
                method.learn(task)
            row: Row = None
            if evaluate == "every" or number == len(stream):
                with clock("predict"):
                    predicted = method.predict(stream.test_x)
                row = _accuracy_by_task(stream, predicted)
            matrix.append(row)
            records.append(_record(len(task), seen, settings.unit, method.nbytes(), method_name))
            seen += len(task)
            advance()

    with clock("diagnose"):
        errors = _reconstruction(stream, method) if isinstance(method, Replays) else ()
        trap = method.trap(stream.test_x, stream.test_y) if isinstance(method, HasLevels) else None
    result = Result(
        stream=stream.name,
        method=method_name,
        seed=settings.seed,
        evaluate=evaluate,
        settings=settings,
        options=method.options.model_dump(mode="json"),
        budget=budget,
        classes=stream.classes,
        task_classes=stream.task_classes,
        tasks=tuple(records),
        accuracy_matrix=tuple(matrix),
        final_accuracy=float((predicted == stream.test_y).mean()),
        forgetting=_forgetting(matrix) if evaluate == "every" else None,
        memory_bytes=method.nbytes(),
        raw_bytes=seen * int(np.prod(stream.image_shape)),
        seconds=_exclusive(clock),
        reconstruction=errors,
        max_generation=allocation.max_generation(seen, settings.unit) if method_name == "logcl" else None,
        trap=trap,
        versions=_versions(),
        hardware=_hardware(),
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    write_atomically(folder / "result.json", result.model_dump_json(indent=2).encode())
    return result


def _accuracy_by_task(stream: Stream, predicted: NDArray[np.int64]) -> tuple[float | None, ...]:
    right = predicted == stream.test_y
    of_task = [np.isin(stream.test_y, classes) for classes in stream.task_classes]
    return tuple(float(right[mine].mean()) if mine.any() else None for mine in of_task)


def _record(samples: int, seen: int, unit: int, memory_bytes: int, method_name: str) -> TaskRecord:
    plan = allocation.plan(seen, seen + samples, unit)
    ours = method_name == "logcl"
    return TaskRecord(
        samples=samples,
        trained=sum(slot.samples for slot in plan.train) if ours else 0,
        replayed=sum(slot.samples for slot in plan.retire) if ours else 0,
        memory_bytes=memory_bytes,
    )


def _forgetting(matrix: list[Row]) -> float | None:
    """Chaudhry et al. 2018, from the accuracy after the task itself on; None for a single task."""
    losses = []
    for task in range(len(matrix) - 1):
        history = [row[task] for row in matrix[task:] if row is not None]
        if None not in history:
            values = np.array(history, dtype=np.float64)
            losses.append(float(values[:-1].max() - values[-1]))
    return float(np.mean(losses)) if losses else None


def _reconstruction(stream: Stream, method: Replays) -> tuple[GenerationError, ...]:
    """Compare what is replayed with the originals, which only an experiment still has."""
    replayed = method.replayed()
    rows = np.concatenate(stream.members)
    errors = squared_errors(stream.source_x[rows[replayed.arrival]], replayed.x)
    return tuple(
        GenerationError(
            generation=int(generation),
            samples=int((mine := replayed.generations == generation).sum()),
            mse=float(errors[mine].mean()),
        )
        for generation in np.unique(replayed.generations)
    )


def _exclusive(clock: Clock) -> dict[str, float]:
    """Absorbing and training happen inside learning, predicting or diagnosing: count each second once."""
    seconds = dict(clock.seconds)
    inner = seconds.get("absorb", 0.0) + seconds.get("train", 0.0)
    outer = sum(seconds.pop(phase, 0.0) for phase in ("learn", "predict", "diagnose"))
    return {**seconds, "other": max(outer - inner, 0.0)}


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("logcl", "torch", "numpy", "safetensors")}
    return {"python": platform.python_version(), **packages}


def _hardware() -> dict[str, str | int]:
    processor = platform.processor() or platform.machine()
    if sys.platform == "linux":
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
        processor = names[0].split(":", 1)[1].strip() if names else processor
    return {
        "processor": processor,
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
    }
