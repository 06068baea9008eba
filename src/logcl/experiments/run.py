"""One experiment: a method learns a stream task by task and is evaluated on the test set.

method × stream → Result
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from logcl import allocation, methods
from logcl.core.errors import BadInput, BadSettings
from logcl.core.files import write_atomically
from logcl.core.progress import Progress, Silent
from logcl.core.writer_lock import writer_lock
from logcl.experiments import checkpoint, measures
from logcl.experiments.checkpoint import Checkpoint, Earlier
from logcl.experiments.result import Result, TaskRecord, make_folder
from logcl.memory.choosing import choose_mirror
from logcl.memory.presets import USUAL_BUDGET
from logcl.memory.settings import Settings, override
from logcl.methods import Method, Problem
from logcl.methods.parts.protocol import Clock
from logcl.streams import Stream


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
    """Train a method on a stream; writes `result.json` (and LogCL's `memory.logcl`) to `folder`.

    `options` are the method's own hyperparameters; `budget` is the most that a method with a buffer may keep.
    The method is evaluated after `every` task, after the `final` one only, or after every n-th task and the
    final one (`"10"`).

    A run that was killed resumes after its last finished task (and announces that through `say`); its result
    equals that of an uninterrupted run. With `earlier="continue"` a folder that holds another run is refused.
    """
    progress, clock = progress or Silent(), Clock()
    if settings.classifier.network == "head":  # all methods have the same network
        settings = override(settings, {"classifier.network": "hidden"})
    every = evaluate_every(evaluate)
    if not len(stream.test_y):
        raise BadInput(f"{stream.name} has no test samples; give every class at least two samples")
    settings = settled(settings, stream)
    problem = Problem(settings, stream.classes, folder, budget, progress, clock)
    method = methods.create(method_name, problem, options)
    choices = {
        "method": method_name,
        "settings": settings.model_dump(mode="json"),
        "options": method.options.model_dump(mode="json"),
        "budget": budget,
        "evaluate": evaluate,
        "versions": _versions(),
    }
    fingerprint = checkpoint.fingerprint(stream, choices)
    make_folder(folder)
    bar = f"{stream.name}, {method_name}, seed {settings.seed}"
    with writer_lock(folder / "result.json"), progress.track(bar, len(stream)) as advance:
        done = Checkpoint(fingerprint=fingerprint)
        if found := checkpoint.resume(folder, fingerprint, earlier):
            done, state = found
            method.restore(state)
            clock.seconds.update(done.seconds)
        else:
            checkpoint.write(folder, done, method.state())
        advance(len(done.records))
        if done.records and say is not None:
            say(f"resuming after task {len(done.records)} of {len(stream)}")
        predicted = np.empty(0, dtype=np.int64)
        for number, task in enumerate(stream, start=1):
            if number <= len(done.records):
                continue
            before = _seconds(clock)
            with clock("learn"):
                method.learn(task)
            row = accuracy = None
            if number == len(stream) or (every and number % every == 0):
                with clock("predict"):
                    predicted = method.predict(stream.test_x)
                row = measures.accuracy_by_task(stream, predicted)
                accuracy = measures.accuracy_so_far(stream, number, predicted)
            record = TaskRecord(
                **asdict(method.effort()),
                samples=len(task),
                memory_bytes=method.nbytes(),
                accuracy=accuracy,
                seconds={phase: max(s - before.get(phase, 0), 0) for phase, s in _seconds(clock).items()},
            )
            done = Checkpoint(
                fingerprint=fingerprint,
                records=(*done.records, record),
                matrix=(*done.matrix, row),
                seconds=dict(clock.seconds),
            )
            if number < len(stream):
                checkpoint.write(folder, done, method.state())
            advance()
        result = _result(stream, method, done, predicted, {**choices, "command": command})
        write_atomically(folder / "result.json", result.model_dump_json(indent=2).encode())
        checkpoint.remove(folder)
    return result


def settled(settings: Settings, stream: Stream) -> Settings:
    """Settings with what is measured on the first task, so that all methods train the same classifier."""
    first = next(iter(stream))
    return choose_mirror(settings, first.x, first.y)[0]


def evaluate_every(evaluate: str) -> int:
    """Parse `every`, `final` or a number: evaluate after every n-th task; 0 is only after the final one."""
    if evaluate in ("every", "final"):
        return 1 if evaluate == "every" else 0
    if evaluate.isdecimal() and int(evaluate) > 0:
        return int(evaluate)
    raise BadSettings(f"evaluate is {evaluate!r}; give every, final, or a number of tasks from 1")


def _result(
    stream: Stream, method: Method, done: Checkpoint, predicted: NDArray[np.int64], choices: dict[str, Any]
) -> Result:
    clock, settings = method.problem.clock, method.problem.settings
    with clock("diagnose"):
        replayed = method.replayed()
        errors = measures.reconstruction(stream, replayed) if replayed else ()
        examples = measures.examples(stream, replayed) if replayed else ()
        trap = method.trap(stream.test_x, stream.test_y)
        generations = allocation.max_generation(stream.samples, settings.unit) if trap else None
    return Result(
        **choices,
        stream=stream.name,
        subset=stream.subset,
        seed=settings.seed,
        classes=stream.classes,
        task_classes=stream.task_classes,
        tasks=done.records,
        accuracy_matrix=done.matrix,
        final_accuracy=float((predicted == stream.test_y).mean()),
        forgetting=measures.forgetting(done.matrix) if choices["evaluate"] == "every" else None,
        confusion=measures.confusion(stream.test_y, predicted),
        memory_bytes=method.nbytes(),
        classifier_bytes=method.classifier_bytes(),
        raw_bytes=stream.samples * int(np.prod(stream.image_shape)),
        seconds=_seconds(clock),
        reconstruction=errors,
        examples=examples,
        max_generation=generations,
        trap=trap,
        hardware=hardware_here(),
        commit=commit_here(),
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _seconds(clock: Clock) -> dict[str, float]:
    """By phase, each second counted once: `absorb` and `train` happen inside the other phases."""
    seconds = dict(clock.seconds)
    inner = seconds.get("absorb", 0.0) + seconds.get("train", 0.0)
    outer = sum(seconds.pop(phase, 0.0) for phase in ("learn", "predict", "diagnose"))
    return {**seconds, "other": max(outer - inner, 0.0)}


def _versions() -> dict[str, str]:
    """Of Python and the packages that affect a result."""
    packages = {name: version(name) for name in ("logcl", "torch", "numpy", "safetensors")}
    return {"python": platform.python_version(), **packages}


def hardware_here() -> dict[str, str | int]:
    """Processor, cores, threads in use, operating system."""
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


def commit_here() -> str | None:
    """Commit of the checkout this code runs from, with a + after local changes; None if it is installed."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True)

    try:
        if git("ls-files", "--error-unmatch", __file__).returncode:
            return None
        changed = git("diff", "--quiet", "HEAD", "--", "..").returncode
        return git("rev-parse", "HEAD").stdout.strip() + ("+" if changed else "")
    except OSError:
        return None  # git is not installed
