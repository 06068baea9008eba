"""Throughput of a DataLoader over a memory: map-style and iterable, with and without workers.

    OMP_NUM_THREADS=1 python bench/loaders.py > results/bench/loaders.md

8,192 images of MNIST and of CIFAR-100 (LOGCL_DATA names the folder of the official files), batches of 128.
Median of three epochs of each loader, after one that starts its workers.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch.utils.data import DataLoader

from logcl import Memory
from logcl.streams import open_stream

COUNT, BATCH, ROUNDS = 8192, 128, 3


def memory_of(name: str, folder: Path) -> Memory:
    stream = open_stream(name)
    x, y = (np.concatenate(part)[:COUNT] for part in zip(*((task.x, task.y) for task in stream), strict=True))
    memory = Memory.open(
        folder / f"{name}.logcl",
        stream.image_shape,
        settings={"codec.name": "autoencoder", "codec.min_steps": 50, "codec.epochs": 1},
    )
    memory.absorb(x, y)
    return memory


def main() -> None:
    torch.set_num_threads(1)
    print(
        "# Samples a second out of a DataLoader\n\n"
        "    OMP_NUM_THREADS=1 python bench/loaders.py > results/bench/loaders.md\n"
    )
    print("| data | way | no worker | 1 worker | 2 workers |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("mnist", "cifar100"):
            memory = memory_of(name, Path(folder))
            ways = {
                "map-style, shuffled": lambda m=memory, **kw: DataLoader(
                    m.dataset(), BATCH, shuffle=True, **kw
                ),
                "iterable, samples": lambda m=memory, **kw: DataLoader(m.dataset(iterable=True), BATCH, **kw),
                "iterable, batches": lambda m=memory, **kw: DataLoader(
                    m.dataset(iterable=True, batch_size=BATCH), None, **kw
                ),
            }
            for title, make in ways.items():
                rates = []
                for workers in (0, 1, 2):
                    loader = make(num_workers=workers, persistent_workers=workers > 0)
                    seconds = []
                    for round_number in range(ROUNDS + 1):
                        began = time.perf_counter()
                        seen = sum(len(y) for _, y in loader)
                        if round_number:
                            seconds.append(time.perf_counter() - began)
                    assert seen == COUNT
                    rates.append(f"{COUNT / statistics.median(seconds):,.0f}")
                    del loader
                print(f"| {name} | {title} | {' | '.join(rates)} |", flush=True)
    print(f"\nBatches of {BATCH}, one thread per process, {os.cpu_count()} cores; torch {torch.__version__}.")


if __name__ == "__main__":
    main()
