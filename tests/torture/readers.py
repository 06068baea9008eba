"""Many readers while one writer absorbs: each sees the memory as of before or after a task."""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
import time
from collections import Counter
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np

from logcl import Memory
from logcl.core.errors import Busy, LogCLError
from logcl.streams import open_stream
from tests.torture.outcome import Outcome

_TASKS, _SIZE, _UNIT = 6, 45, 16
Seen = Counter[tuple[str, str]]
"""How often a reader saw each memory (digest) with its replay, or an error with its text."""


def trial(readers: int, rounds: int, folder: Path) -> Outcome:
    """Run several readers beside a writer that absorbs one task after another; repeat."""
    seen: Seen = Counter()
    details: Counter[str] = Counter()
    writers = 0
    allowed: set[str] = set()
    for number in range(rounds):
        place = folder / f"round{number}"
        tasks = _tasks(place)
        states, refused = _round(place / "m.logcl", tasks, readers, seen)
        allowed |= states
        writers += refused
        shutil.rmtree(place)
    replayed: dict[str, set[str]] = {}
    for digest, images in seen:
        replayed.setdefault(digest, set()).add(images)
    right = sum(
        count for (digest, _), count in seen.items() if digest in allowed and len(replayed[digest]) == 1
    )
    details["second writers, all refused"] = writers
    details["different memories seen"] = len(replayed)
    for (digest, text), count in seen.items():
        if digest not in allowed or len(replayed[digest]) > 1:
            details[f"{digest[:60]}: {text[:200]}"] = count
    tried = sum(seen.values())
    return Outcome(
        "readers",
        f"{readers} processes open and replay a memory while another absorbs {_TASKS} tasks; a second writer "
        f"keeps trying to write",
        tried, right, tried - right, dict(details),
    )  # fmt: skip


def _tasks(folder: Path) -> list[Path]:
    folder.mkdir(parents=True)
    task = next(iter(open_stream("digits", tasks=1)))
    recipe = {"codec.name": "autoencoder", "codec.epochs": 1, "codec.min_steps": 60}
    Memory.open(folder / "m.logcl", (1, 8, 8), unit=_UNIT, settings=recipe)
    paths = []
    for number in range(_TASKS):
        paths.append(folder / f"task{number}.npz")
        rows = slice(number * _SIZE, (number + 1) * _SIZE)
        np.savez(paths[-1], x=task.x[rows], y=task.y[rows])
    return paths


def _round(path: Path, tasks: list[Path], readers: int, seen: Seen) -> tuple[set[str], int]:
    """The successive digests of the memory, and how many second writers were refused."""
    context = multiprocessing.get_context("spawn")
    queue: Queue[Seen] = context.Queue()
    done = path.with_name("done")
    crowd = [context.Process(target=_read, args=(path, done, queue)) for _ in range(readers)]
    for reader in crowd:
        reader.start()
    memory = Memory(path)
    states, refused = {memory.digest}, 0
    digests: Queue[str] = context.Queue()
    writer = context.Process(target=_write, args=(path, tasks, digests))
    writer.start()
    while writer.is_alive():
        refused += _is_refused(memory, writer.pid)
        time.sleep(0.01)
    if writer.exitcode:
        raise RuntimeError(f"the writer failed beside readers: exit {writer.exitcode}")
    states |= {digests.get() for _ in tasks}
    done.touch()
    for _ in crowd:
        seen.update(queue.get(timeout=60))
    for reader in crowd:
        reader.join()
    return states, refused


def _is_refused(memory: Memory, holder: int | None) -> bool:
    """Whether a second writer is refused with the name of the first."""
    if not memory.path.with_name(memory.path.name + ".lock").exists():
        return False
    try:
        with memory.file.writing():
            return False  # the first writer has just finished, or not started
    except LogCLError as error:
        return f"process {holder} on" in str(error) or "another process" in str(error)


def _write(path: Path, tasks: list[Path], digests: Queue[str]) -> None:
    """Absorb one task after another, and report the digest after each."""
    memory = Memory.open(path)
    for task in tasks:
        with np.load(task) as arrays:
            x, y = arrays["x"], arrays["y"]
        while True:
            try:
                memory.absorb(x, y)
                break
            except Busy:
                time.sleep(0.01)  # the second writer holds the lock for a moment
        digests.put(memory.digest)


def _read(path: Path, done: Path, queue: Queue[Seen]) -> None:
    """Open, replay and close repeatedly."""
    seen: Seen = Counter()
    while not done.exists():
        try:
            now = Memory.open(path).snapshot()
            x, y = now.fetch(np.arange(1, now.n + 1))
            seen[now.digest, hashlib.sha256(x.numpy().tobytes() + y.tobytes()).hexdigest()] += 1
        except LogCLError as error:
            seen[type(error).__name__, str(error)] += 1
    queue.put(seen)
