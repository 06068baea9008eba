"""Two Ray workers against one, one thread each: the fits of a task, and the cells of a grid.

    OMP_NUM_THREADS=1 python bench/engines.py > results/bench/engines.md

The cluster is two nodes with one processor each, on this machine. Engines are measured in turn within one
run, after a first round that starts the processes; speed-ups are ratios of medians. On a machine with two
cores the highest possible speed-up is two, and less if anything else keeps a core busy.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import ray
import torch
from ray.cluster_utils import Cluster
from sklearn.datasets import load_digits

from logcl import Memory
from logcl.core.progress import Silent
from logcl.experiments.bench import grid
from logcl.experiments.bench.grid import Cell, Place
from logcl.nn.engines import Local
from logcl.nn.engines.ray import Ray

ROUNDS = 3
UNIT = 64
SETTINGS = {"codec.name": "autoencoder", "codec.min_steps": 2500, "codec.epochs": 1, "codec.patience": 0}
"""Enough steps that every level of the task takes the same number: equal fits."""


def digits() -> tuple[np.ndarray, np.ndarray]:
    data = load_digits()
    return np.rint(data.images / 16 * 255).astype(np.uint8)[:, None], data.target.astype(np.int64)


def base(folder: Path) -> Path:
    """A memory of eight units, all in level 3, which later tasks keep."""
    x, y = digits()
    memory = Memory.open(folder / "base.logcl", (1, 8, 8), unit=UNIT, settings=SETTINGS)
    memory.absorb(x[: 8 * UNIT], y[: 8 * UNIT])
    assert [slot.level for slot in memory.plan(6 * UNIT).train] == [2, 1]
    return memory.path


def absorb(engine: Local | Ray, start: Path, folder: Path) -> str:
    """Absorb six more units: levels 2 and 1, two fits of equal length. Returns the digest."""
    x, y = digits()
    path = folder / "memory.logcl"
    shutil.copy(start, path)
    memory = Memory.open(path)
    memory.absorb(x[8 * UNIT : 14 * UNIT], y[8 * UNIT : 14 * UNIT], engine=engine)
    return memory.digest


CELLS = [
    Cell(stream="digits", method="joint", seed=seed, tasks=2, changes={"classifier.min_steps": 400})
    for seed in range(4)
]


def finish(engine: Local | Ray, start: Path, folder: Path) -> str:
    """Run a grid of four similar cells. Returns their results."""
    del start
    place = Place(folder / "grid", "smoke")
    grid.run(CELLS, place, command="", happened=lambda _: None, engine=engine, progress=Silent())
    found = place.finished(CELLS)
    return str([found[cell.name].accuracy_matrix for cell in CELLS])


def measure(
    job: Callable[[Local | Ray, Path, Path], str], engines: dict[str, Local | Ray], start: Path
) -> list[str]:
    """A row per engine: seconds, and the speed-up over one Ray worker."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    results = set()
    for number in range(ROUNDS + 1):
        for name, engine in engines.items():
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                results.add(job(engine, start, Path(folder)))
                if number:  # the first round starts workers
                    seconds[name].append(time.perf_counter() - began)
    assert len(results) == 1, "engines gave different results"
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return [
        f"| {name} | {value:.1f} | {middle['one Ray worker'] / value:.2f} |" for name, value in middle.items()
    ]


def main() -> None:
    torch.set_num_threads(1)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    with tempfile.TemporaryDirectory() as folder, Ray(cluster.address, workers=2, threads=1) as two:
        engines: dict[str, Local | Ray] = {
            "this process": Local(),
            "one Ray worker": Ray(workers=1, threads=1),
            "two Ray workers": two,
        }
        start = base(Path(folder))
        print("# Two Ray workers against one\n")
        print("    OMP_NUM_THREADS=1 python bench/engines.py > results/bench/engines.md\n")
        for title, job in (
            ("A task of two equal fits", absorb),
            ("A grid of four equal cells", finish),
        ):
            print(f"**{title}**\n\n| who | seconds | speed-up |\n|---|---|---|")
            print("\n".join(measure(job, engines, start)) + "\n")
    cluster.shutdown()
    processor = next(
        (
            line.split(": ")[1]
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    print(
        f"Medians of {ROUNDS} rounds in one run, engines in turn; a cluster of two nodes of one processor on "
        f"one machine, one thread a worker; results are the same to the bit. {processor}, {os.cpu_count()} "
        f"cores, so that 2 is the most there can be; torch {torch.__version__}, ray {ray.__version__}."
    )


if __name__ == "__main__":
    main()
