"""The cost of safety: time for digests, staging and commit, as a share of absorbing 1,000 samples.

    python bench/commit.py [--datasets mnist,cifar100] [--tasks 4]

Writes results/bench/commit.md. Needs the data sets: see `logcl data list`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from logcl import Memory
from logcl.memory import staging
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.presets import preset
from logcl.streams import open_stream

SAMPLES = 1000
STEPS = ("read and verified", "digest of the task", "staged work looked for", "levels staged", "commit")


@contextmanager
def timed(seconds: dict[str, float]) -> Iterator[None]:
    """Add up the time spent on safety checks and on writing the file."""

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started

        return call

    with (
        mock.patch.object(staging, "task_digest", watched("digest of the task", staging.task_digest)),
        mock.patch.object(MemoryFile, "staged", watched("staged work looked for", MemoryFile.staged)),
        mock.patch.object(MemoryFile, "stage", watched("levels staged", MemoryFile.stage)),
        mock.patch.object(MemoryFile, "commit", watched("commit", MemoryFile.commit)),
        mock.patch.object(MemoryFile, "snapshot", watched("read and verified", MemoryFile.snapshot)),
    ):
        yield


def measure(dataset: str, tasks: int) -> list[tuple[int, float, dict[str, float]]]:
    """For each task: levels trained, total seconds, seconds by step."""
    stream = open_stream(dataset, tasks=1)
    task = next(iter(stream))
    order = np.random.default_rng(0).permutation(len(task))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory.create(Path(folder) / "m.logcl", preset("fast", stream.image_shape, dataset))
        for number in range(tasks):
            mine = order[number * SAMPLES : (number + 1) * SAMPLES]
            seconds: dict[str, float] = {}
            started = time.perf_counter()
            with timed(seconds):
                done = memory.absorb(task.x[mine], task.y[mine])
            rows.append((len(done.plan.train), time.perf_counter() - started, seconds))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="mnist,cifar100")
    parser.add_argument("--tasks", type=int, default=4)
    asked = parser.parse_args()
    lines = [
        "# What safety costs",
        "",
        f"    python bench/commit.py --datasets {asked.datasets} --tasks {asked.tasks}",
        "",
        f"Absorbing tasks of {SAMPLES:,} samples, preset `fast`: milliseconds spent on reading and verifying",
        "what is there, the digest of the task, staging levels as they are trained, and the commit with its",
        "digests and syncs; and their share of the whole.",
        "",
        "| data | task | levels trained | whole, s | "
        + " | ".join(f"{name}, ms" for name in STEPS)
        + " | share |",
        "|" + "---|" * (len(STEPS) + 5),
    ]
    for dataset in asked.datasets.split(","):
        for number, (levels, whole, seconds) in enumerate(measure(dataset, asked.tasks), start=1):
            cells = [f"{1000 * seconds.get(name, 0.0):.0f}" for name in STEPS]
            share = 100 * sum(seconds.values()) / whole
            lines.append(
                f"| {dataset} | {number} | {levels} | {whole:.1f} | {' | '.join(cells)} | {share:.2f} % |"
            )
    (Path(__file__).parents[1] / "results" / "bench" / "commit.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
