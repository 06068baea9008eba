"""What keeps the global model from recognising classes by their decoders: noise, and alternatives to it.

    LOGCL_DATA=... python bench/trap.py [--samples 12000] [--seeds 2] > results/bench/trap.md
    LOGCL_DATA=... python bench/trap.py --memory runs/mnist-fast/memory.logcl --epochs 3

MNIST in five tasks is absorbed once per seed, unless a memory of it, e.g. from `logcl run mnist`, is given.
The same classifier is then trained on replay, changed in each of the ways below. Most ways change only the
training images; "both sides" changes the test images as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from training import train_network

from logcl.codecs.autoencoder import RateDistortion
from logcl.codecs.cosine import Cosine, CosineSpec
from logcl.core.settings import ClassifierSettings, Recipe
from logcl.core.text import spread
from logcl.memory import diagnostics
from logcl.memory.local_model import LocalModel
from logcl.memory.memory import Memory
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, override
from logcl.memory.snapshot import Snapshot
from logcl.methods.parts.solver import tensors
from logcl.nn import networks
from logcl.nn.classification import predict_classes
from logcl.nn.images import to_unit
from logcl.nn.training import Work, generator_for
from logcl.streams import Stream, Task, open_stream

Images = NDArray[np.uint8]


@dataclass(frozen=True)
class Way:
    """One way to make levels look alike."""

    name: str
    noise: float = 0.0
    matched: bool = False
    both: Callable[[Images], Images] = lambda x: x
    features: bool = False


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--bytes-per-sample", type=float)
    parser.add_argument("--memory", type=Path, help="A memory of MNIST; ways that fit decoders are left out.")
    arguments = parser.parse_args()
    ways = (
        Way("nothing"),
        Way("white noise 0.05", 0.05),
        Way("white noise 0.15", 0.15),
        Way("white noise 0.3 (`paper-cpu`)", 0.3),
        Way("noise up to the worst level's error", matched=True),
        Way("the same and white noise 0.3", 0.3, matched=True),
        Way("blur, both sides", both=blurred),
        Way("one common codec, 22 dB, both sides", both=coded),
        Way("decoders fitted to a labeller's features", features=True),
        Way("the same and white noise 0.3", 0.3, features=True),
    )
    if arguments.memory:
        ways = tuple(way for way in ways if not way.features)
        arguments.seeds = 1
    found: dict[int, list[tuple[float, float, float, float]]] = {place: [] for place in range(len(ways))}
    joint: list[float] = []
    for seed in range(arguments.seeds):
        stream = open_stream("mnist", seed=seed)
        settings = override(
            preset("fast", stream.image_shape), {"seed": seed, "classifier.epochs": arguments.epochs}
        )
        if arguments.bytes_per_sample:
            settings = override(settings, {"codec.bytes_per_sample": arguments.bytes_per_sample})
        tasks = list(stream)
        if arguments.memory:
            memories = {False: given(arguments.memory, settings)}
        else:
            each = arguments.samples // 5
            tasks = [Task(task.x[:each], task.y[:each]) for task in tasks]
            memories = {features: absorbed(tasks, settings, features) for features in (False, True)}
        for place, way in enumerate(ways):
            found[place].append(evaluated(memories[way.features], way, stream))
            print(seed, way.name, found[place][-1], file=sys.stderr, flush=True)
        joint.append(on_raw(tasks, stream, settings))
    print("# Labels by distortion: what helps\n")
    command = " ".join(["python bench/trap.py", *sys.argv[1:]])
    print(
        f"Made by `{command}`. {sum(map(len, tasks)):,} images of MNIST in five tasks, `fast`,\n"
        f"{arguments.epochs} epochs of the classifier, {arguments.seeds} seed(s). "
        f"The same classifier on the raw images, noise 0.3: {100 * np.mean(joint):.2f} %.\n"
    )
    print("| change to replay | accuracy % | gap between levels | level recognised, given the class |")
    print("|---|---|---|---|")
    for place, way in enumerate(ways):
        accuracy, gap, probe, by_class = np.array(found[place]).T
        print(
            f"| {way.name} | {spread(100 * accuracy)} | {gap.mean():.3f} | "
            f"{probe.mean():.2f} (by class alone {by_class.mean():.2f}) |"
        )


def absorbed(tasks: list[Task], settings: Settings, features: bool) -> Snapshot:
    """A memory of all tasks; `features` measures distortion by a labeller that is trained on each level."""
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory.create(Path(folder) / "memory.logcl", settings)
        usual = LocalModel.fit

        def fit(slot, samples, *rest):
            work = Work(generator_for(settings.seed, slot.level, slot.start))
            measure = feature_distance(samples.x, samples.y, settings, work)
            with mock.patch.object(RateDistortion, "distortion", staticmethod(measure)):
                return usual(slot, samples, *rest)

        with mock.patch.object(LocalModel, "fit", staticmethod(fit if features else usual)):
            for task in tasks:
                memory.absorb(task.x, task.y)
        return memory.snapshot()


def given(path: Path, settings: Settings) -> Snapshot:
    """An existing memory, with the classifier settings of this comparison."""
    now = Memory.open(path).snapshot()
    return with_classifier(now, settings.classifier)


def with_classifier(now: Snapshot, classifier: ClassifierSettings) -> Snapshot:
    """The same memory with another classifier in its settings."""
    settings = now.settings.model_copy(update={"classifier": classifier})
    return dataclasses.replace(now, manifest=now.manifest.model_copy(update={"settings": settings}))


def feature_distance(x: Images, y: NDArray[np.int64], settings: Settings, work: Work):
    """Squared error of pixels plus that of a labeller's embedding, scaled to count alike."""
    numbers = np.unique(y, return_inverse=True)[1]
    spec = networks.ClassifierSpec(
        network="convnet", image_shape=settings.image_shape, classes=max(int(numbers.max()) + 1, 2), width=8
    )
    images, labels = torch.from_numpy(np.array(x)), torch.from_numpy(numbers)
    recipe = settings.classifier.model_copy(
        update=Recipe(epochs=2, min_steps=100, learning_rate=5e-3).model_dump()
    )
    labeller = train_network(spec, lambda rows: (images[rows], labels[rows]), len(labels), recipe, work)
    labeller.requires_grad_(False)
    with torch.no_grad():
        spread = labeller.embed(to_unit(images[:256])).var(dim=0).mean().clamp(min=1e-6)
    pixels = to_unit(images[:256]).var(dim=0).mean()

    def distance(decoded: Tensor, image: Tensor) -> Tensor:
        apart = (labeller.embed(decoded) - labeller.embed(image)).square().mean() / spread * pixels
        return nn.functional.mse_loss(decoded, image) + 0.5 * apart

    return distance


def evaluated(now: Snapshot, way: Way, stream: Stream) -> tuple[float, float, float, float]:
    """Accuracy on test images, gap between levels, and accuracy of the level probe."""
    images, classes = now.everything()
    errors = np.concatenate([np.full(run.count, sum(run.errors)) for run in now.runs])
    missing = torch.from_numpy(np.sqrt(errors.max() - errors)).float() if way.matched else None
    pixels, labels = torch.from_numpy(way.both(images.numpy())), torch.from_numpy(classes)
    generator = generator_for(now.settings.seed, 1)

    def roughened(x: Tensor, rows: Tensor) -> Tensor:
        if missing is None:
            return x
        noise = missing[rows, None, None, None] * torch.randn(x.shape, generator=generator)
        return ((to_unit(x) + noise).clamp(0, 1) * 255).round().to(torch.uint8)

    settings = now.settings.classifier.model_copy(update={"noise": way.noise})
    spec = networks.ClassifierSpec(
        network=settings.network, width=settings.width, image_shape=now.settings.image_shape,
        classes=len(now.classes),
    )  # fmt: skip
    network = train_network(
        spec, lambda rows: (roughened(pixels[rows], rows), labels[rows]), now.n, settings,
        Work(generator_for(now.settings.seed, 2)),
    )  # fmt: skip
    numbers = {int(label): number for number, label in enumerate(now.classes)}
    test_x, test_y = way.both(np.asarray(stream.test_x)), np.array([numbers[int(y)] for y in stream.test_y])
    seen = with_classifier(now, settings)
    drawn = diagnostics.draw(now)
    # The probe sees images with the same changes; it adds the noise of the settings itself.
    rows = torch.from_numpy(_rows_of(now, drawn))
    changed = roughened(torch.from_numpy(way.both(drawn.x)), rows).numpy()
    drawn = dataclasses.replace(drawn, x=changed)
    probe = diagnostics.level_probe(seen, drawn)
    gap = diagnostics.level_gap(seen, network, test_x, test_y, drawn)
    accuracy = float((predict_classes(network, test_x) == test_y).mean())
    return (
        accuracy, gap.gap if gap.gap is not None else float("nan"),
        probe.probe if probe else float("nan"), probe.by_class if probe else float("nan"),
    )  # fmt: skip


def _rows_of(now: Snapshot, drawn: diagnostics.Drawn) -> NDArray[np.int64]:
    """For each drawn sample, the first one of its level: samples of a level have about the same error."""
    starts = [level.slot.start - 1 for level in now.levels] + ([now.n - 1] if len(now.buffer) else [])
    return np.array(starts)[drawn.level]


def on_raw(tasks: list[Task], stream: Stream, settings: Settings) -> float:
    """The same classifier on the raw images."""
    x, y = zip(*map(tensors, tasks), strict=True)
    images, labels = torch.cat(x), torch.cat(y)
    spec = networks.ClassifierSpec(
        network=settings.classifier.network, width=settings.classifier.width,
        image_shape=settings.image_shape, classes=len(stream.classes),
    )  # fmt: skip
    work = Work(generator_for(settings.seed, 2))
    network = train_network(
        spec, lambda rows: (images[rows], labels[rows]), len(labels), settings.classifier, work
    )  # fmt: skip
    return float((predict_classes(network, np.asarray(stream.test_x)) == stream.test_y).mean())


def blurred(x: Images) -> Images:
    """A light blur, [1 2 1] in both directions."""
    kernel = torch.tensor([0.25, 0.5, 0.25])
    images = torch.from_numpy(np.array(x)).float()
    channels = images.shape[1]
    window = torch.outer(kernel, kernel).expand(channels, 1, 3, 3)
    padded = nn.functional.pad(images, (1, 1, 1, 1), mode="replicate")
    return nn.functional.conv2d(padded, window, groups=channels).round().to(torch.uint8).numpy()


def coded(x: Images) -> Images:
    """Encoded and decoded with cosine coefficients of one fixed step, a codec without weights."""
    codec = Cosine(CosineSpec(image_shape=x.shape[1:], step=0.25))
    return codec.decode(codec.encode(np.ascontiguousarray(x)), np.arange(len(x))).numpy()


if __name__ == "__main__":
    main()
