"""`logcl absorb` in separate processes, on real images, killed while they replay, train and commit.

The processes are forked from one that has imported everything: importing torch would take most of the time.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from logcl import Memory
from logcl.core.errors import LogCLError
from logcl.streams import Stream, open_stream
from tests.torture.commands import Command, start
from tests.torture.outcome import Outcome, Tally

_UNIT = 32
_SIZES = (40, 100, 190, 70)  # of the tasks: one, two and three levels fitted at once, and levels retired
_PATIENCE = 4  # kills per task; then it may finish
_AIMS = ("replay", "training", "training", "commit", "commit")
_STEPS = {"digits": 400, "mnist": 40}  # per fit: more than half a second on one core, so that it is staged


@dataclass(frozen=True)
class Scene:
    """Tasks, and the memory before the first and after each of them without interruption."""

    path: Path
    start: bytes
    """The file before the first task."""
    tasks: list[Path]
    digests: list[str]
    seconds: list[float]
    """From taking the lock to the end, per task."""


def trial(kills: int, seed: int, folder: Path, source: str = "digits") -> Outcome:
    """Kill `count` writers while they absorb tasks of `source` (digits, mnist)."""
    rng, tally = random.Random(seed), Tally(folder)
    scene = _prepare(open_stream(source, tasks=1), folder / "scene")
    memory = Memory(scene.path)
    task = killed_here = 0
    while tally.tried < kills:
        if task == len(scene.tasks):
            scene.path.write_bytes(scene.start)
            task = killed_here = 0
        if killed_here == _PATIENCE:
            # Whatever the kills left behind, the task must now end as if nothing had been killed.
            finished = _start(scene.path, scene.tasks[task])
            code, _, err = finished.finish()
            wrong = "" if code == 0 else f"exit {code}: {err!r}"
            wrong = wrong or _wrong(memory, [scene.digests[task + 1]])
            tally.details["let finish after several kills"] += 1
            tally.lost += bool(wrong)
            if wrong:
                tally.details[f"did not finish as if unbroken: {wrong}"] += 1
                scene.path.write_bytes(scene.start)
                task = -1
            task, killed_here = task + 1, 0
            continue
        aim = rng.choice(_AIMS)
        process = _start(scene.path, scene.tasks[task])
        _await_moment(aim, scene, task, rng, process)
        process.kill()
        journal = _journal(scene.path).exists()
        files = {path.name: path.read_bytes() for path in scene.path.parent.glob("m.logcl*")}
        wrong = _wrong(memory, scene.digests[task : task + 2])
        tally.count(files, f"task {task}, aimed at {aim}", wrong)
        tally.details["inside a commit"] += journal
        if wrong:
            scene.path.write_bytes(scene.start)
            task = killed_here = 0
            continue
        tally.details["with levels staged"] += bool(memory.file.staged())
        after = memory.digest == scene.digests[task + 1]
        tally.details["the memory after" if after else "the memory before"] += 1
        task, killed_here = (task + 1, 0) if after else (task, killed_here + 1)
    shutil.rmtree(folder / "scene")
    return tally.outcome(
        "kills",
        f"`logcl absorb` of {source}, killed at random while it replays, trains and commits; opened, "
        f"verified and resumed",
    )


def _prepare(stream: Stream, folder: Path) -> Scene:
    """Absorb every task once, without interruption."""
    folder.mkdir(parents=True)
    first = next(iter(stream))
    path = folder / "m.logcl"
    steps = _STEPS[stream.name]
    recipe = {"codec.name": "autoencoder", "codec.epochs": 1, "codec.min_steps": steps}
    memory = Memory.open(path, stream.image_shape, unit=_UNIT, settings=recipe)
    memory.absorb(first.x[:20], first.y[:20])
    start = path.read_bytes()
    tasks, digests, seconds, at = [], [memory.digest], [], 20
    for number, size in enumerate(_SIZES):
        tasks.append(folder / f"task{number}.npz")
        np.savez(tasks[-1], x=first.x[at : at + size], y=first.y[at : at + size])
        at += size
        process = _start(path, tasks[-1])
        _wait(_lock(path).exists, process)
        began = time.monotonic()
        code, _, err = process.finish()
        if code:
            raise RuntimeError(f"logcl absorb failed without being killed: {err!r}")
        seconds.append(time.monotonic() - began)
        digests.append(memory.digest)
    path.write_bytes(start)
    return Scene(path, start, tasks, digests, seconds)


def _start(memory: Path, task: Path) -> Command:
    return start(memory.parent / "said", "absorb", memory, task)


def _await_moment(aim: str, scene: Scene, task: int, rng: random.Random, process: Command) -> None:
    """Wait until the process is in the phase to be killed in; return at once if it has ended."""
    _wait(_lock(scene.path).exists, process)
    if aim == "commit":
        # Each staged level is a commit too.
        for _ in range(rng.randint(1, 3)):
            _wait(_journal(scene.path).exists, process)
            if rng.random() < 0.5:
                break
            _wait(lambda: not _journal(scene.path).exists(), process)
        time.sleep(
            rng.random() * rng.choice((0, 0.0005, 0.004))
        )  # how long a commit takes depends on the disk
    else:
        share = 0.1 if aim == "replay" else 1.0
        time.sleep(rng.random() * share * scene.seconds[task])


def _wait(condition: Callable[[], bool], process: Command) -> None:
    while not condition() and process.process.is_alive():
        time.sleep(0.0002)


def _lock(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _journal(path: Path) -> Path:
    return path.with_name(path.name + "-journal")


def _wrong(memory: Memory, allowed: list[str]) -> str:
    """What is wrong with the memory ("" if nothing)."""
    try:
        problems = memory.verify()
        if problems:
            return "; ".join(problems)
        return "" if memory.digest in allowed else "neither the memory before nor the one after"
    except LogCLError as error:
        return f"{type(error).__name__}: {error}"
