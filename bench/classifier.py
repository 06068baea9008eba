"""The default classifier by image size: images trained per second on one core, and accuracy on photographs.

    OMP_NUM_THREADS=1 python bench/classifier.py [--photographs FOLDER --sizes 64,128,224]

Writes results/bench/classifier.md. FOLDER holds `train` and `test` with class-named folders of photographs;
without it only the speed is measured, on random images. Seconds are CPU time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from logcl.memory.classifier_limits import room
from logcl.memory.presets import preset
from logcl.nn import blobs
from logcl.nn.classification import averages, batch_loss, new_network, predict_classes, train_on
from logcl.nn.networks import ClassifierSpec, weight_count
from logcl.nn.training import Work, fit, generator_for, total_steps
from logcl.streams import open_stream
from streams import cpu_name

SHAPES = [(1, 28, 28), (1, 105, 105), (3, 32, 32), (3, 64, 64), (3, 100, 100), (3, 128, 128), (3, 224, 224)]
CLASSES, STEPS = 10, 3


def speed(shape: tuple[int, int, int]) -> dict[str, Any]:
    """Images trained per second with the default settings: the fastest of a few whole optimiser steps."""
    settings = preset("fast", shape).classifier
    spec = ClassifierSpec.of(settings, shape, CLASSES)
    network = new_network(spec, Work(generator_for(0)))
    pixels = torch.randint(256, (settings.batch_size, *shape), dtype=torch.uint8, generator=generator_for(1))
    labels = torch.arange(settings.batch_size) % CLASSES
    moments = [time.process_time()]
    fit(
        network,
        lambda rows: batch_loss(network, pixels[rows], labels[rows], settings),
        len(labels),
        settings.model_copy(update={"epochs": 1 + STEPS, "min_steps": 0}),
        Work(generator_for(2)),
        after_step=lambda: moments.append(time.process_time()),
    )
    return {
        "image": "x".join(map(str, shape)),
        "grid": "x".join(map(str, spec.grid)) if spec.stem > 1 else "–",
        "weights": f"{weight_count(spec):,}",
        "stored": f"{len(blobs.pack(spec, blobs.weights(network, 'network', 'half'))) / 1e6:.2f} MB",
        "images per second": f"{settings.batch_size / np.diff(moments)[1:].min():,.0f}",
    }


def accuracy(folder: Path, side: int) -> dict[str, Any]:
    """Train the default classifier on the raw photographs, cropped to squares; evaluate on the test folder.

    As `logcl train` does for a memory of a thousand bytes per photograph, mirrored as are all photographs.
    """
    shape = 3, side, side
    stream = open_stream(folder, tasks=1, image_shape=shape)
    settings = preset("fast", shape).classifier.model_copy(update={"mirror": True})
    spec = ClassifierSpec.of(settings, shape, len(stream.classes))
    (task,) = stream
    pixels, labels = torch.from_numpy(np.array(task.x)), torch.from_numpy(np.array(task.y))
    started = time.process_time()
    work = Work(generator_for(0))
    network, (at_once, _) = new_network(spec, work), room(spec, 1000 * len(labels))
    train_on(network, lambda rows: (pixels[rows], labels[rows]), len(labels), settings, work, at_once)
    seconds = time.process_time() - started
    exact = predict_classes(network, stream.test_x, mirrored=averages(settings))
    blobs.round_weights(network, "half")
    rounded = predict_classes(network, stream.test_x, mirrored=averages(settings))
    steps = total_steps(settings, len(labels))
    return {
        "image": "x".join(map(str, shape)),
        "epochs": f"{steps * settings.batch_size / len(labels):.0f}",
        "seconds": f"{seconds:.0f}",
        "accuracy %": f"{100 * (exact == stream.test_y).mean():.1f}",
        "in half precision %": f"{100 * (rounded == stream.test_y).mean():.1f}",
    }


def table(rows: list[dict[str, Any]]) -> str:
    head = f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}\n"
    return head + "".join(f"| {' | '.join(row.values())} |\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photographs", type=Path, help="folder with train and test")
    parser.add_argument("--sizes", default="64,128,224", help="sides of the photographs; default %(default)s")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "results" / "bench", help="folder of the page"
    )
    asked = parser.parse_args()
    command = "OMP_NUM_THREADS=1 python bench/classifier.py"
    if asked.photographs:
        command += f" --photographs {asked.photographs.name} --sizes {asked.sizes}"
    page = (
        f"# The default classifier by image size\n\nMade by `{command}`: {cpu_name()}, "
        f"{torch.get_num_threads()} thread, torch {torch.__version__}; seconds of CPU time.\n\nImages larger "
        f"than 64x64 go through a stem, which reduces them to the grid. Augmentation is part of the time.\n\n"
    )
    page += table([speed(shape) for shape in SHAPES])
    rows = []
    write(asked.out, page)
    for side in asked.sizes.split(",") if asked.photographs else ():
        rows.append(accuracy(asked.photographs, int(side)))
        about = "Trained on all raw photographs at once, seed 0, evaluated on the test folder:"
        write(asked.out, f"{page}\n{about}\n\n{table(rows)}")  # an interrupted run keeps its measurements


def write(folder: Path, page: str) -> None:
    (folder / "classifier.md").write_text(page, encoding="utf-8")
    print(page, flush=True)


if __name__ == "__main__":
    main()
