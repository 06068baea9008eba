"""One experiment: a method learns a stream, task by task, and is examined on the test set.

method × stream → Result
"""

from __future__ import annotations

import base64
import io
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from logcl import allocation, methods
from logcl.core.errors import BadInput, BadSettings, CannotWrite
from logcl.core.files import write_atomically
from logcl.core.images import squared_errors
from logcl.core.progress import Progress, Silent
from logcl.core.writer_lock import writer_lock
from logcl.experiments import checkpoint
from logcl.experiments.checkpoint import Checkpoint, Occupied
from logcl.experiments.result import ERROR_BINS, Examples, GenerationError, Result, Row, TaskRecord
from logcl.memory.presets import USUAL_BUDGET
from logcl.memory.settings import Settings
from logcl.methods import HasLevels, Problem, Replays, State
from logcl.methods.logcl import MEMORY
from logcl.methods.parts.protocol import Clock, Effort, HasEffort, Replayed
from logcl.streams import Stream

Earlier = Literal["continue", "continue or replace", "replace"]
"""What happens to a run that is in the folder: go on with it or refuse it, or begin again in its place."""

_EXAMPLES = 5  # of each level and generation


def run(
    stream: Stream,
    method_name: str,
    settings: Settings,
    folder: Path,
    *,
    budget: str = USUAL_BUDGET,
    options: Mapping[str, Any] | None = None,
    evaluate: str = "every",
    earlier: Earlier = "continue",
    command: str | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Result:
    """Let a method learn a stream; leaves `result.json` (and LogCL's `memory.logcl`) in `folder`.

    `options` are the method's own hyperparameters, `budget` is what it may keep if it has a buffer. It is
    examined after `every` task, after the `final` one, or after every so many and the final one ("10").

    A run that was killed goes on after its last finished task, and finds what an unbroken one would have
    found; `say` is told. `earlier` decides about a folder that holds another run: `continue` refuses it.
    """
    progress = progress or Silent()
    clock = Clock()
    stride = examined_every(evaluate)
    if not len(stream.test_y):
        raise BadInput(f"{stream.name} has no test samples: its classes have one sample each; add more")
    method = methods.create(
        method_name, Problem(settings, stream.classes, folder, budget, progress, clock), options
    )
    choices = {
        "method": method_name,
        "settings": settings.model_dump(mode="json"),
        "options": method.options.model_dump(mode="json"),
        "budget": budget,
        "evaluate": evaluate,
        "versions": _versions(),
    }
    fingerprint = checkpoint.fingerprint(stream, choices)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"the run folder {folder} cannot be made ({error.strerror})") from error

    bar = f"{stream.name}, {method_name}, seed {settings.seed}"
    with writer_lock(folder / "result.json"), progress.track(bar, len(stream)) as advance:
        found = _interrupted(folder, fingerprint, earlier)
        if found is None:
            about = Checkpoint(fingerprint=fingerprint)
            checkpoint.write(folder, about, method.state())  # from now on the folder is this run's
        else:
            about, state = found
            method.restore(state)
            clock.seconds.update(about.seconds)
            advance(len(about.records))
            if about.records and say is not None:
                say(f"going on after task {len(about.records)} of {len(stream)}")
        records, matrix = list(about.records), list(about.matrix)
        predicted = np.empty(0, dtype=np.int64)
        seen = np.zeros(len(stream.classes), bool)
        for number, task in enumerate(stream, start=1):
            seen[task.y] = True
            if number <= len(about.records):
                continue
            before = _exclusive(clock)
            with clock("learn"):
                method.learn(task)
            row, accuracy = None, None
            if number == len(stream) or (stride and number % stride == 0):
                with clock("predict"):
                    predicted = method.predict(stream.test_x)
                row = _accuracy_by_task(stream, predicted)
                known = seen[stream.test_y]
                accuracy = float((predicted == stream.test_y)[known].mean()) if known.any() else None
            matrix.append(row)
            effort = method.effort() if isinstance(method, HasEffort) else Effort(0, 0, 0)
            records.append(
                TaskRecord(
                    samples=len(task),
                    trained=effort.trained,
                    replayed=effort.replayed,
                    models=effort.models,
                    memory_bytes=method.nbytes(),
                    accuracy=accuracy,
                    seconds={phase: s - before.get(phase, 0.0) for phase, s in _exclusive(clock).items()},
                )
            )
            if number < len(stream):
                now = Checkpoint(
                    fingerprint=fingerprint,
                    records=tuple(records),
                    matrix=tuple(matrix),
                    seconds=dict(clock.seconds),
                )
                checkpoint.write(folder, now, method.state())
            advance()

        with clock("diagnose"):
            replayed = method.replayed() if isinstance(method, Replays) else None
            errors = _reconstruction(stream, replayed) if replayed else ()
            examples = _examples(stream, replayed) if replayed else ()
            trap = method.trap(stream.test_x, stream.test_y) if isinstance(method, HasLevels) else None
        result = Result(
            stream=stream.name,
            subset=stream.subset,
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
            confusion=_confusion(stream.test_y, predicted),
            memory_bytes=method.nbytes(),
            raw_bytes=stream.samples * int(np.prod(stream.image_shape)),
            seconds=_exclusive(clock),
            reconstruction=errors,
            examples=examples,
            max_generation=(
                allocation.max_generation(stream.samples, settings.unit) if method_name == "logcl" else None
            ),
            trap=trap,
            versions=_versions(),
            hardware=_hardware(),
            commit=_commit(),
            command=command,
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        write_atomically(folder / "result.json", result.model_dump_json(indent=2).encode())
        checkpoint.remove(folder)
    return result


def _interrupted(folder: Path, fingerprint: str, earlier: Earlier) -> tuple[Checkpoint, State] | None:
    """Where the run goes on; None if it begins, after what is not of this run was refused or removed."""
    if earlier == "replace":
        _clear(folder)
    memory = folder / MEMORY
    try:
        found = checkpoint.read(folder)
        if found is None and memory.exists():
            raise Occupied(f"{memory} exists from an earlier run; choose another --out or add --overwrite")
        if found is not None and found[0].fingerprint != fingerprint:
            raise Occupied(
                f"the run in {folder} was begun with other settings, data or code; add --overwrite to begin "
                "again, or choose another --out"
            )
    except Occupied:
        if earlier == "continue":
            raise
        _clear(folder)
        return None
    return found


def _clear(folder: Path) -> None:
    """Remove an earlier run, at the last moment: when its replacement is about to begin."""
    try:
        for name in (MEMORY, f"{MEMORY}-journal", "result.json"):
            (folder / name).unlink(missing_ok=True)
        checkpoint.remove(folder)
    except OSError as error:
        raise CannotWrite(f"{error.filename} cannot be replaced ({error.strerror})") from error


def examined_every(evaluate: str) -> int:
    """After how many tasks a method is examined, as a user writes it; 0 is only at the end."""
    if evaluate in ("every", "final"):
        return 1 if evaluate == "every" else 0
    if evaluate.isdecimal() and int(evaluate) > 0:
        return int(evaluate)
    raise BadSettings(f"evaluate is {evaluate!r}; give every, final, or a number of tasks from 1")


def _accuracy_by_task(stream: Stream, predicted: NDArray[np.int64]) -> tuple[float | None, ...]:
    right = predicted == stream.test_y
    of_task = [np.isin(stream.test_y, classes) for classes in stream.task_classes]
    return tuple(float(right[mine].mean()) if mine.any() else None for mine in of_task)


def _forgetting(matrix: list[Row]) -> float | None:
    """Chaudhry et al. 2018, from the accuracy after the task itself on; None for a single task."""
    losses = []
    for task in range(len(matrix) - 1):
        history = [row[task] for row in matrix[task:] if row is not None]
        if None not in history:
            values = np.array(history, dtype=np.float64)
            losses.append(float(values[:-1].max() - values[-1]))
    return float(np.mean(losses)) if losses else None


def _confusion(true: NDArray[np.int64], predicted: NDArray[np.int64]) -> tuple[tuple[int, int, int], ...]:
    pairs, counts = np.unique(np.stack([true, predicted]), axis=1, return_counts=True)
    return tuple((int(t), int(p), int(c)) for t, p, c in zip(*pairs, counts, strict=True))


def _reconstruction(stream: Stream, replayed: Replayed) -> tuple[GenerationError, ...]:
    """Compare what is replayed with the originals, which only an experiment still has."""
    rows = np.concatenate(stream.members)
    errors = squared_errors(stream.source_x[rows[replayed.arrival]], replayed.x)
    found = []
    for generation in np.unique(replayed.generations):
        mine = errors[replayed.generations == generation]
        counts, _ = np.histogram(mine.clip(ERROR_BINS[0], ERROR_BINS[-1]), ERROR_BINS)
        found.append(
            GenerationError(
                generation=int(generation),
                samples=len(mine),
                mse=float(mine.mean()),
                histogram=tuple(map(int, counts)),
            )
        )
    return tuple(found)


def _examples(stream: Stream, replayed: Replayed) -> tuple[Examples, ...]:
    """A few samples of each level and generation, evenly spaced, beside their originals."""
    rows = np.concatenate(stream.members)
    found = []
    for level, generation in np.unique(np.stack([replayed.levels, replayed.generations]), axis=1).T:
        mine = np.flatnonzero((replayed.levels == level) & (replayed.generations == generation))
        some = mine[np.linspace(0, len(mine) - 1, min(_EXAMPLES, len(mine))).astype(int)]
        found.append(
            Examples(
                level=int(level),
                generation=int(generation),
                arrival=tuple(int(number) + 1 for number in replayed.arrival[some]),
                originals=_png(stream.source_x[rows[replayed.arrival[some]]]),
                replayed=_png(replayed.x[some]),
            )
        )
    return tuple(found)


def _png(images: NDArray[np.uint8]) -> str:
    """(n, C, H, W), uint8, side by side: a PNG in base64. Other numbers of channels show their mean."""
    if images.shape[1] not in (1, 3):
        images = images.mean(axis=1, keepdims=True).astype(np.uint8)
    strip = np.concatenate(list(images.transpose(0, 2, 3, 1)), axis=1)
    stream = io.BytesIO()
    Image.fromarray(strip[:, :, 0] if strip.shape[2] == 1 else strip).save(stream, "png", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()


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


def _commit() -> str | None:
    """The commit of the checkout that this code runs from; None for an installed package."""
    source = Path(__file__).parent
    git = ["git", "-C", str(source)]
    try:
        known = subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True)
        if known.returncode:
            return None
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "."], capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None  # no git here
    return head.stdout.strip() + ("+" if changed.returncode else "")
