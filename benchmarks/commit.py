"""What safety costs: the seconds of digests, staging and commit, as a share of absorbing 1,000 samples.

    python benchmarks/commit.py [--dataset mnist] [--tasks 4]

Writes benchmarks/commit.md. Needs the data set: see `logcl data list`.
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

from logcl import Memory, staging
from logcl.presets import preset
from logcl.storage import MemoryFile
from logcl.streams import open_stream

SAMPLES = 1000


@contextmanager
def timed(seconds: dict[str, float]) -> Iterator[None]:
    """Add up the time spent in everything that exists for safety alone, or for writing the file."""

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--tasks", type=int, default=4)
    asked = parser.parse_args()
    stream = open_stream(asked.dataset, tasks=1)
    task = next(iter(stream))
    order = np.random.default_rng(0).permutation(len(task))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory.create(Path(folder) / "m.logcl", preset("fast", stream.image_shape, asked.dataset))
        for number in range(asked.tasks):
            mine = order[number * SAMPLES : (number + 1) * SAMPLES]
            seconds: dict[str, float] = {}
            started = time.perf_counter()
            with timed(seconds):
                done = memory.absorb(task.x[mine], task.y[mine])
            whole = time.perf_counter() - started
            rows.append((number + 1, len(done.plan.train), whole, seconds))
    names = list(rows[-1][3])
    lines = [
        "# What safety costs",
        "",
        f"    python benchmarks/commit.py --dataset {asked.dataset} --tasks {asked.tasks}",
        "",
        f"Absorbing {SAMPLES:,} samples of {asked.dataset}, preset `fast`: milliseconds spent on reading and",
        "verifying what is there, the digest of the task, staging levels as they are trained, and the commit",
        "with its digests and syncs.",
        "",
        "| task | levels trained | whole, s | " + " | ".join(f"{name}, ms" for name in names) + " | share |",
        "|" + "---|" * (len(names) + 4),
    ]
    for number, levels, whole, seconds in rows:
        cells = [f"{1000 * seconds.get(name, 0.0):.0f}" for name in names]
        share = 100 * sum(seconds.values()) / whole
        lines.append(f"| {number} | {levels} | {whole:.1f} | {' | '.join(cells)} | {share:.2f} % |")
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
