"""The recipe of the default classifier: what each part of it gives, on strokes, objects and photographs.

    LOGCL_DATA=... python bench/recipe.py mnist --samples 10000 --set epochs=4
    LOGCL_DATA=... python bench/recipe.py cifar100 --samples 20000 --held-out 5000 --set epochs=6
    LOGCL_DATA=... python bench/recipe.py clothing/train --side 28 --grey --only now --only "no shifts"
    LOGCL_DATA=... python bench/recipe.py omniglot --mirroring

Prints Markdown; results/bench/recipe.md is put together from it. Training is joint, on raw images: the upper
bound of all methods. With `--held-out`, accuracy is that on so many training images that are left out, as is
right for choosing; otherwise on the test images. Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from training import train_network

from logcl.core.pictures import from_picture, to_picture
from logcl.core.settings import ClassifierSettings, ImageShape
from logcl.memory.mirroring import measure
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.nn.classification import averages, predict_proba
from logcl.nn.networks import ClassifierSpec
from logcl.nn.training import Work, generator_for
from logcl.streams import Pixels, open_stream

_ADAM: dict[str, Any] = {"optimiser": "adam", "learning_rate": 2e-3, "batch_size": 128}
_STROKES: dict[str, Any] = {
    "optimiser": "adam", "learning_rate": 5e-3, "weight_decay": 0, "label_smoothing": 0, "noise": 0.3,
    "mirror": False, "batch_size": 128,
}  # fmt: skip
RECIPES: dict[str, dict[str, Any]] = {
    "now": {},
    "with adam": _ADAM,
    "with the noise of 0.3 that was the default of grey images": {"noise": 0.3},
    "as grey images were trained before": _STROKES,
    "shifts of 1 pixel": {"shift": 1},
    "no shifts": {"shift": 0},
    "mirrored": {"mirror": True},
    "without mirroring": {"mirror": False},
    "without averaging mirror images": {"average_mirrored": False},
}


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", help="a data set, or a folder with a folder per class")
    parser.add_argument("--samples", type=int, help="of the training images; default: all")
    parser.add_argument("--held-out", type=int, default=0)
    parser.add_argument("--side", type=int, help="resize to this side")
    parser.add_argument("--grey", action="store_true")
    parser.add_argument("--only", action="append", choices=RECIPES, help="by default all recipes")
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--mirroring", action="store_true", help="only measure whether images may be mirrored"
    )
    arguments = parser.parse_args()
    stream = open_stream(arguments.source, tasks=None, seed=0)
    tasks = [(np.array(task.x), np.array(task.y)) for task in stream]
    prepare = [_prepared(x, arguments.side, arguments.grey) for x, _ in tasks]
    first = measure(prepare[0], tasks[0][1])
    print(f"`{' '.join(sys.argv)}`\n\nFirst task: {first}.\n", flush=True)
    if arguments.mirroring:
        return
    order = np.random.default_rng(0).permutation(stream.samples)
    x, y = np.concatenate(prepare)[order], np.concatenate([y for _, y in tasks])[order]
    test_x, test_y = (
        _prepared(np.array(stream.test_x), arguments.side, arguments.grey),
        np.array(stream.test_y),
    )
    if held := arguments.held_out:
        test_x, test_y, x, y = x[:held], y[:held], x[held:], y[held:]
    x, y = x[: arguments.samples], y[: arguments.samples]
    given = dict(change.split("=", 1) for change in arguments.changes)
    print(f"{len(x):,} images.\n\n| recipe | accuracy % | seconds |\n|---|---|---|", flush=True)
    for name in arguments.only or RECIPES:
        runs = []
        for seed in range(arguments.seeds):
            settings = _settings((*x.shape[1:],), first.mirror, {**given, **RECIPES[name]})
            runs.append(_run(settings, (x, y), (test_x, test_y), len(stream.classes), seed))
        scores, seconds = zip(*runs, strict=True)
        print(f"| {name} | {100 * np.mean(scores):.2f} | {np.mean(seconds):.0f} |", flush=True)


def _settings(shape: ImageShape, mirror: bool, changes: dict[str, Any]) -> ClassifierSettings:
    named = {f"classifier.{key}": value for key, value in {"mirror": mirror, **changes}.items()}
    return override(preset("fast", shape), named).classifier


def _run(
    settings: ClassifierSettings, train: tuple[Any, Any], test: tuple[Any, Any], classes: int, seed: int
) -> tuple[float, float]:
    """Accuracy on the test images, and seconds of training."""
    x, y = (torch.from_numpy(part) for part in train)
    spec = ClassifierSpec.of(settings, (*x.shape[1:],), classes)
    began = time.process_time()
    work = Work(generator_for(seed))
    network = train_network(spec, lambda rows: (x[rows], y[rows]), len(y), settings, work)
    seconds = time.process_time() - began
    predicted = predict_proba(network, test[0], mirrored=averages(settings)).argmax(axis=1)
    return float((predicted == test[1]).mean()), seconds


def _prepared(x: Pixels, side: int | None, grey: bool) -> Pixels:
    """Images (n, C, H, W), grey and resized as asked."""
    if side is None and not grey:
        return x
    pictures = (to_picture(image).convert("L" if grey else "RGB") for image in x)
    sides = (side, side) if side else x.shape[:1:-1]
    return np.stack([from_picture(ImageOps.fit(one, sides, Image.Resampling.LANCZOS)) for one in pictures])


if __name__ == "__main__":
    main()
