"""The benches: which experiments each of them runs, at each scale.

`full` is the size of the paper. `small` uses a part of the data: about a quarter of an hour on two cores.
`smoke` only checks that everything runs. Code and tables are the same for all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from logcl.experiments.bench.grid import Cell, Scale, Thinning

Changes = dict[str, Any]


def _few_steps(*recipes: str) -> Changes:
    return {f"{name}.{key}": value for name in recipes for key, value in (("epochs", 1), ("min_steps", 4))}


_QUICK: Changes = {
    **_few_steps("codec", "labels.training", "classifier"),
    "codec.warm_up_epochs": 1, "classifier.batch_size": 8, "unit": 32,
}  # fmt: skip
"""Settings with which any method runs in a second and learns nothing."""

_SMALL_NETWORKS = {"encoder": (16,), "decoder": (16,), "latent": 4, "chunks": 4, "held": 2}
_QUICK_OPTIONS: dict[str, Changes] = {
    "ewc": {"fisher_samples": 4},
    "vcl": _few_steps("training", "refining"),
    "curl": {**_few_steps("training"), "width": 16},
    "hypercl": {**_few_steps("generator"), **_SMALL_NETWORKS},
}

_BRIEF: dict[str, Changes] = {
    "fast": {},
    "paper-cpu": {"codec.min_steps": 300, "labels.training.min_steps": 750},
}
_BRIEF_OPTIONS: dict[str, Changes] = {"hypercl": {"generator.min_steps": 300}}
"""For grey images at scale `small`: three eighths of a generator's minimum of steps."""

_THINNING: dict[str, dict[str, Thinning]] = {
    "small": {
        "mnist": Thinning(per_class=300),
        "omniglot": Thinning(per_class=60),
        "omniglot-100": Thinning(one_class_in=3),
        "cifar100": Thinning(per_class=20, test_per_class=20),
    },
    "smoke": {
        "mnist": Thinning(per_class=20, test_per_class=5),
        "omniglot": Thinning(per_class=5, one_class_in=2, test_per_class=2),
        "omniglot-100": Thinning(per_class=4, one_class_in=3, test_per_class=1),
        "cifar100": Thinning(per_class=2, one_class_in=5, test_per_class=2),
    },
}


class Bench(NamedTuple):
    """A named grid of experiments."""

    summary: str
    cells: Callable[[Scale, int], Iterator[Cell]]
    """Scale and seed → the cells of that seed."""
    seeds: int = 1
    """Default number of seeds at scale `full`; the other scales have one."""

    def grid(self, scale: Scale, seeds: int | None = None, methods: set[str] | None = None) -> list[Cell]:
        """All cells, seed by seed, so that an interrupted grid has complete tables of fewer seeds."""
        count = seeds or (self.seeds if scale == "full" else 1)
        cells = [_scaled(cell, scale) for seed in range(count) for cell in self.cells(scale, seed)]
        return [cell for cell in cells if methods is None or cell.method in methods]


def _scaled(cell: Cell, scale: Scale) -> Cell:
    """The cell with as much data and training as the scale allows."""
    if scale == "full":
        return cell
    changes, options = cell.changes, cell.options
    if scale == "smoke":
        changes = {**changes, **_QUICK}
        options = {**_QUICK_OPTIONS.get(cell.method, {}), **options}
    elif cell.stream != "cifar100":  # presets for colour images need no shorter training
        changes = {"classifier.min_steps": 120, **_BRIEF[cell.preset], **changes}
        options = {**_BRIEF_OPTIONS.get(cell.method, {}), **options}
    thinning = cell.thinning or _THINNING[scale].get(cell.stream)
    return cell.but(thinning=thinning, changes=changes, options=options)


_PUBLISHED_MLP: Changes = {
    "classifier.network": "mlp", "classifier.width": 50, "classifier.learning_rate": 1e-3,
    "classifier.noise": 0.0, "classifier.shift": 0,
}  # fmt: skip
"""400-400, the network that HyperCL was published with. Convolutions would learn to tell the images of its
small decoders from raw ones instead of learning classes: see docs/methods.md."""


def _table1(scale: Scale, seed: int) -> Iterator[Cell]:
    del scale
    rivals = ("binplay", "generative-replay", "er", "finetune", "hypercl", "vcl", "curl")
    for stream in ("mnist", "omniglot"):
        for method in ("logcl", "joint", *rivals):
            # BinPlay computes codes from the index, as this preset does; the classifier is the same.
            preset = "paper-cpu" if method == "binplay" else "fast"
            changes = _PUBLISHED_MLP if method == "hypercl" else {}
            yield Cell(stream=stream, method=method, seed=seed, preset=preset, changes=changes)


TABLE2_SETTINGS = {
    "ewc": "offline", "si": "offline", "hypercl": "offline", "er": "online", "mir": "online", "gss": "online",
    "icarl": "offline", "gdumb": "online", "gmed": "online",
}  # fmt: skip
"""The setting in which each rival's published accuracy was measured."""


def _table2(scale: Scale, seed: int) -> Iterator[Cell]:
    tasks = 5 if scale == "smoke" else None
    # A quarter of the width, as in `bytes`, is a sixteenth of the work.
    narrow: Changes = {"classifier.width": 16} if scale == "small" else {}
    for method in ("logcl", "joint", "finetune"):
        yield Cell(stream="cifar100", method=method, seed=seed, tasks=tasks, changes=narrow)
    for method, setting in TABLE2_SETTINGS.items():
        cell = Cell(stream="cifar100", method=method, seed=seed, preset=setting, variant=setting, tasks=tasks)
        if scale != "full":  # buffers shrink with the data
            cell = cell.but(budget={"online": "400", "offline": "100"}[setting])
        if scale == "small" and setting == "offline":  # 70 epochs would take more than a quarter of an hour
            cell = cell.but(changes={"classifier.epochs": 5})
        if scale == "small" and method == "hypercl":
            cell = cell.but(options={"generator.epochs": 2, "generator.min_steps": 20, "held": 4})
        yield cell


def _extreme(scale: Scale, seed: int) -> Iterator[Cell]:
    tasks = 10 if scale == "smoke" else 100
    # Steps of the first classifier; after each later task it takes this share of them, from a warm start.
    steps, share = (120, 0.2) if scale == "small" else (800, 0.1)
    # Smaller batches than by default: more steps in the same time.
    changes: Changes = {"classifier.min_steps": steps, "classifier.batch_size": 64}
    if scale == "small":
        changes |= {"classifier.epochs": 5}
    cell = Cell(stream="omniglot-100", method="joint", seed=seed, tasks=tasks)
    warm = {"classifier.warm_start": True, "classifier.warm_share": share}
    for method in ("logcl", "replay-buffer", "generative-replay"):
        yield cell.but(method=method, evaluate="every", changes={**changes, **warm})
    # Once, at the end, for as many steps as the others take in total.
    total = {"classifier.min_steps": steps + round((tasks - 1) * share * steps)}
    yield cell.but(changes={**changes, **total})


MNIST_BYTES = (12, 18, 27, 40, 60, 90, 135, 200)
"""Budgets in bytes per sample; a raw sample has 784."""
COLOUR_BYTES = (40, 60, 90, 135, 200, 300, 450, 700)
"""The same for CIFAR-100, whose raw samples have 3,072."""


def _bytes(scale: Scale, seed: int) -> Iterator[Cell]:
    budgets: tuple[int, ...]
    for stream, budgets, samples in (("mnist", MNIST_BYTES, 60_000), ("cifar100", COLOUR_BYTES, 50_000)):
        changes: Changes = {}
        thinning = None
        if scale == "small" and stream == "mnist":
            thinning, samples = Thinning(per_class=200), 2000
        elif scale == "small":  # with few samples of 100 classes, all accuracies would be near chance
            thinning, samples = Thinning(one_class_in=5, per_class=200), 4000
            changes = {"classifier.width": 16, "classifier.epochs": 16}
        elif scale == "smoke":
            samples = 200 if stream == "mnist" else 40
            budgets = budgets[3::4]
        cell = Cell(stream=stream, method="joint", seed=seed, changes=changes, thinning=thinning)
        yield cell
        yield cell.but(method="logcl", variant="default")
        for count in budgets:
            sized = cell.but(variant=f"{count}B")
            yield sized.but(method="logcl", changes={**changes, "codec.bytes_per_sample": count})
            yield sized.but(method="gdumb", budget=f"{count * samples / 1e6}MB")
            for codec in ("webp", "jpeg", "avif"):
                options = {"codec": codec, "bytes_per_sample": count}
                yield cell.but(method="codec-buffer", variant=f"{codec}-{count}B", options=options)
        yield cell.but(method="logcl", variant="paper-cpu", preset="paper-cpu")  # takes as long as all others


def _growth(scale: Scale, seed: int) -> Iterator[Cell]:
    # Only the memory is measured: the classifier is trained once, briefly.
    changes: Changes = {"classifier.epochs": 1, "classifier.min_steps": 4, "codec.min_steps": 100}
    tasks = {"smoke": 8, "small": 48, "full": 120}[scale]
    thinning = {"smoke": Thinning(per_class=40, test_per_class=5), "small": Thinning(per_class=1200)}
    if scale == "small":
        changes |= {"codec.epochs": 2, "unit": 250}
    cell = Cell(
        stream="mnist", method="logcl", seed=seed, changes=changes, tasks=tasks, thinning=thinning.get(scale)
    )
    yield cell
    yield cell.but(method="generative-replay")


BENCHES = {
    "table1": Bench("the paper's table of MNIST and Omniglot", _table1, seeds=3),
    "table2": Bench("the paper's table of CIFAR-100", _table2),
    "extreme": Bench("100 tasks, 300 characters", _extreme, seeds=3),
    "bytes": Bench("accuracy against bytes kept", _bytes),
    "growth": Bench("cost per task as n grows", _growth),
}
