"""Do warm starts help: from the decoder of a merged level, and from the last global model?

    LOGCL_DATA=... python bench/warm_start.py [--source mnist] [--samples 12000] [--seeds 2]

Prints Markdown, stored in results/bench/warm_start.md. Everything else is equal: stream, seeds, recipes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from logcl.memory.memory import Memory
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, override
from logcl.memory.snapshot import Snapshot
from logcl.nn.classification import batch_loss, new_network, predict_classes
from logcl.nn.networks import ClassifierSpec
from logcl.nn.training import Work, fit, generator_for
from logcl.streams import Stream, Task, open_stream


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--source", default="mnist")
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    decoders: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
    classifiers: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for seed in range(arguments.seeds):
        stream = open_stream(arguments.source, seed=seed)
        each = arguments.samples // len(stream)
        tasks = [Task(task.x[:each], task.y[:each]) for task in stream]
        settings = override(preset("fast", stream.image_shape), {"seed": seed})
        for warm in (True, False):
            snapshots, seconds = absorbed(tasks, override(settings, {"codec.warm_start": warm}))
            now = snapshots[-1]
            images, _ = now.everything()
            error = squared_error(images.numpy(), np.concatenate([task.x for task in tasks]))
            top = now.levels[0].runs
            largest = sum(run.count * sum(run.errors) for run in top) / sum(run.count for run in top)
            decoders[warm].append((error, largest, seconds))
            print(seed, "decoder", warm, decoders[warm][-1], file=sys.stderr, flush=True)
            if warm:
                for key, found in trained(snapshots, stream).items():
                    classifiers.setdefault(key, []).append(found)
                    print(seed, key, found, file=sys.stderr, flush=True)
    command = " ".join(["python bench/warm_start.py", *sys.argv[1:]])
    print(
        f"## {arguments.source}, {arguments.samples:,} samples, {len(tasks)} tasks, {arguments.seeds} seeds\n"
    )
    print(f"Made by `{command}`; means over seeds.\n")
    print("| decoder of the largest level starts from | squared error | of the largest level | absorb s |")
    print("|---|---|---|---|")
    for warm, found in decoders.items():
        error, largest, seconds = np.mean(found, axis=0)
        name = "the largest one it replaces" if warm else "random weights"
        print(f"| {name} | {error:.5f} | {largest:.5f} | {seconds:.0f} |")
    print("\n| global model starts from | epochs | accuracy after the last task % | seconds, all tasks |")
    print("|---|---|---|---|")
    for (name, share), found in classifiers.items():
        accuracy, seconds = np.mean(found, axis=0)
        print(f"| {name} | {share:g} of the recipe's | {100 * accuracy:.2f} | {seconds:.0f} |")
    print()


def absorbed(tasks: list[Task], settings: Settings) -> tuple[list[Snapshot], float]:
    """The memory after each task, and the time it took."""
    snapshots = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory.create(Path(folder) / "memory.logcl", settings)
        for task in tasks:
            memory.absorb(task.x, task.y)
            snapshots.append(memory.snapshot())
    return snapshots, time.perf_counter() - started


def squared_error(x: np.ndarray, z: np.ndarray) -> float:
    return (
        float(np.mean([np.square(a.astype(np.float32) - b).mean() for a, b in zip(x, z, strict=True)]))
        / 255**2
    )


def trained(snapshots: list[Snapshot], stream: Stream) -> dict[tuple[str, float], tuple[float, float]]:
    """Accuracy after the last task and total training time, for each way to train after every task."""
    found = {}
    for name, share in (
        ("random weights", 1.0),
        ("the last one", 1.0),
        ("random weights", 0.5),
        ("the last one", 0.5),
    ):
        network: nn.Module | None = None
        started = time.perf_counter()
        for number, now in enumerate(snapshots):
            if network is None or name == "random weights":
                network = None
            network = one_training(now, stream, network, share, number)
        seconds = time.perf_counter() - started
        labels = {label: number for number, label in enumerate(snapshots[-1].classes)}
        test_y = np.array([labels[int(y)] for y in stream.test_y])
        assert network is not None
        found[name, share] = (
            float((predict_classes(network, np.asarray(stream.test_x)) == test_y).mean()),
            seconds,
        )
    return found


def one_training(
    now: Snapshot, stream: Stream, network: nn.Module | None, share: float, key: int
) -> nn.Module:
    images, classes = now.everything()
    labels = torch.from_numpy(classes)
    settings = now.settings.classifier
    settings = settings.model_copy(
        update={
            "epochs": max(round(share * settings.epochs), 1),
            "min_steps": round(share * settings.min_steps),
        }
    )
    spec = ClassifierSpec.of(settings, now.settings.image_shape, len(stream.classes))
    work = Work(generator_for(now.settings.seed, key))
    network = network or new_network(spec, work)
    network.requires_grad_(True)
    fit(
        network, lambda rows: batch_loss(network, images[rows], labels[rows], settings), now.n, settings, work
    )
    return network


if __name__ == "__main__":
    main()
