"""Candidates of a preview, each measured by filling a small memory; and which of them is recommended.

What differs between candidates is in `Candidate`: to compare another kind, add one to `candidates`.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logcl.core.errors import BadSettings, LogCLWarning
from logcl.core.images import squared_errors
from logcl.core.pictures import Pixels
from logcl.core.progress import Progress, Silent
from logcl.core.settings import Frozen, ImageShape
from logcl.core.sizes import shape_text
from logcl.core.text import human_bytes, human_seconds
from logcl.experiments.preview.source import PHOTOGRAPHS, Source
from logcl.memory.choosing import Choice, choose
from logcl.memory.classifier import stored_bytes
from logcl.memory.memory import Absorbed, Memory
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, override
from logcl.nn import backbones, networks
from logcl.nn.backbones import Backbone
from logcl.nn.classification import batch_loss, new_network
from logcl.nn.timing import seconds_per_image
from logcl.nn.training import Work, generator_for, new_optimiser, total_steps

_OF_IMAGES = ("codec.name", "codec.psnr")  # what is asked for does not concern features
_ENOUGH = 16  # samples of which half say what a sample takes
_LONG = 1800.0
"""Seconds of training that are too long for a recommendation, if there is a smaller size."""


class Row(Frozen):
    """What a memory of all images of the source would take; extrapolated from a few of them."""

    name: str
    image_shape: ImageShape
    codec: str
    bytes_per_sample: float
    """Of the memory."""
    psnr: float | None
    """Of replayed images in dB; None if a memory holds no images."""
    memory_bytes: int
    classifier_bytes: int
    tenfold_bytes: int
    """The file of ten times as many images."""
    absorb_seconds: float
    train_seconds: float

    @property
    def option(self) -> str:
        """What chooses it when a memory is created."""
        return f"--backbone {self.name}" if self.psnr is None else f"--image-shape {self.name}"

    @property
    def file_bytes(self) -> int:
        """The whole file, with the classifier."""
        return self.memory_bytes + self.classifier_bytes


@dataclass(frozen=True, eq=False)
class Measured:
    """A row, and what its replay looks like."""

    row: Row
    replayed: Pixels | None
    """(n, C, H, W) of the images for measurements; None if a memory holds no images."""


@dataclass(frozen=True)
class Candidate:
    """Images of one size, or features of a backbone."""

    shape: ImageShape
    """Of the images that are read."""
    changes: Mapping[str, Any]
    """To the preset's settings."""
    backbone: Backbone | None = None

    @property
    def name(self) -> str:
        """Height x width, or the backbone."""
        return shape_text(self.shape[1:]) if self.backbone is None else self.backbone.spec.name

    def settings(self) -> Settings:
        """The settings of its memory."""
        if self.backbone is None:
            return override(preset("fast", self.shape), self.changes)
        spec = self.backbone.spec
        changes = {name: value for name, value in self.changes.items() if name not in _OF_IMAGES}
        return override(preset("fast", spec.sample_shape, None, spec), changes)

    def measure(self, source: Source) -> Measured:
        """Fill a small memory and take a few steps of training."""
        settings = self.settings()
        with _stopwatch() as reading:
            x = source.read(self.shape, settings.fit)
            if self.backbone is not None:
                x = self.backbone.samples(x)
        numbers = np.unique(source.labels, return_inverse=True)[1].astype(np.int64)
        with _stopwatch() as choosing:
            settings, choice = choose(settings, x, numbers, samples=source.total)
        with TemporaryDirectory(prefix="logcl-") as folder:
            # Half of them first: networks are then loaded, and the difference is what more samples take.
            half = _filled(Path(folder) / "half.logcl", settings, choice, x[::2], source.labels[::2])[0]
            with _stopwatch() as absorbing:
                memory, done = _filled(Path(folder) / "all.logcl", settings, choice, x, source.labels)
            each, fixed = _bytes(half, memory)
            replayed = _replayed(memory, done, x) if self.backbone is None else None
        trained, classifier = training(settings, x, numbers, source.classes, source.total)
        row = Row(
            name=self.name, image_shape=self.shape, codec=settings.codec.name,
            bytes_per_sample=each + fixed / source.total,
            psnr=None if replayed is None else _psnr(x, replayed),
            memory_bytes=round(fixed + each * source.total), classifier_bytes=classifier,
            tenfold_bytes=round(fixed + 10 * each * source.total + classifier),
            absorb_seconds=choosing() + (reading() + absorbing()) * source.total / len(source),
            train_seconds=trained,
        )  # fmt: skip
        return Measured(row, replayed)


def candidates(source: Source, changes: Mapping[str, Any]) -> list[Candidate]:
    """What is compared for these images: sizes and, for photographs, features of the backbone at hand."""
    found = [Candidate(shape, changes) for shape in source.shapes]
    if source.survey is not None and min(source.usual[1:]) >= PHOTOGRAPHS:
        with contextlib.suppress(BadSettings):  # its package is not installed
            network = backbones.load(backbones.BUILT_IN)
            found.append(Candidate(network.spec.image_shape, changes, network))
    return found


def measure_all(source: Source, changes: Mapping[str, Any], progress: Progress) -> list[Measured]:
    """Every candidate, measured one after the other."""
    each = candidates(source, changes)
    found = []
    with progress.track("measuring", len(each)) as advance:
        for candidate in each:
            advance(0, note=candidate.name)
            found.append(candidate.measure(source))
            advance()
    return found


def recommended(rows: Sequence[Row], source: Source) -> tuple[Row, str]:
    """The row to choose and a sentence that says why.

    Features, if they were compared. Else the usual size of such images, or the next smaller one that does not
    train for too long.
    """
    if not rows:
        raise BadSettings("there is nothing to compare; give at least one size")
    pixels = sorted((row for row in rows if row.psnr is not None), key=_values)
    features = [row for row in rows if row.psnr is None]
    usual = math.prod(source.usual)
    fitting = [row for row in pixels if _values(row) <= usual] or pixels[:1]
    quick = [row for row in fitting if row.train_seconds <= _LONG] or fitting[:1]
    if features:
        why = f"{_price(features[0])}, and a pretrained network knows photographs"
        return features[0], why + (f"; for a memory of images: {quick[-1].name}" if quick else "")
    if len(rows) == 1:
        return rows[0], "the only size that was compared"
    best, larger = quick[-1], pixels[pixels.index(quick[-1]) + 1 :]
    why = _price(best)
    if best is not fitting[-1]:
        why += f"; {fitting[-1].name} would train for {human_seconds(fitting[-1].train_seconds)}"
    elif larger:
        size, time = larger[0].memory_bytes / best.memory_bytes, larger[0].train_seconds / best.train_seconds
        why += f"; {larger[0].name} would take {size:.1f} times the memory and {time:.1f} times the training"
    return best, why


def _values(row: Row) -> int:
    return math.prod(row.image_shape)


def _price(row: Row) -> str:
    return f"{human_bytes(row.file_bytes)} and {human_seconds(row.train_seconds)} of training"


def training(
    settings: Settings, x: Pixels, y: NDArray[np.int64], classes: int, total: int
) -> tuple[float, int]:
    """Seconds that training the classifier on `total` images takes here, and its bytes in the file."""
    recipe = settings.classifier
    if recipe.network == "head":
        recipe = recipe.model_copy(update={"network": "hidden"})  # the slower of those that it may become
    spec = networks.ClassifierSpec.of(recipe, settings.image_shape, max(classes, 1))
    network = new_network(spec, Work(generator_for(settings.seed), Silent()))
    images, labels = torch.from_numpy(x), torch.from_numpy(y)

    def loss(rows: Tensor) -> Tensor:
        chosen = rows % len(images)
        return batch_loss(network, images[chosen], labels[chosen], recipe)

    batch = min(recipe.batch_size, total)
    update = new_optimiser(network, recipe).step
    each = seconds_per_image(network, loss, batch, batch, update, batch)
    return each * batch * total_steps(recipe, total), stored_bytes(spec, network)


def _filled(
    path: Path, settings: Settings, choice: Choice | None, x: Pixels, labels: Sequence[str]
) -> tuple[Memory, Absorbed]:
    """A memory of one level, and what was done."""
    one = settings.model_copy(update={"unit": len(x)})
    memory = Memory.new(path, one, choice=choice)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LogCLWarning)  # about a file that is deleted in a moment
        return memory, memory.absorb(x, labels)


def _bytes(half: Memory, memory: Memory) -> tuple[float, float]:
    """Bytes that each sample takes, and those that a memory of any size has."""
    (n, size), (most, total) = ((m.n, m.file.sizes()["level-0"]) for m in (half, memory))
    each = (total - size) / (most - n) if most >= _ENOUGH else total / most
    return each, max(memory.nbytes() - each * most, 0)


def _replayed(memory: Memory, done: Absorbed, x: Pixels) -> Pixels:
    """The images of the only task as the memory replays them, in the order in which they were given."""
    images = memory.snapshot().everything()[0].numpy()
    found: Pixels = images.copy()
    for slot, order in done.orders.items():
        found[slot.start - 1 + order] = images[slot.start - 1 : slot.stop]
    assert found.shape == x.shape
    return found


def _psnr(x: Pixels, replayed: Pixels) -> float:
    return -10 * math.log10(max(float(squared_errors(x, replayed).mean()), 1e-6))


@contextmanager
def _stopwatch() -> Iterator[Any]:
    """Yields a function that gives the seconds inside the block, after it."""
    began, took = time.perf_counter(), [0.0]
    yield lambda: took[0]
    took[0] = time.perf_counter() - began
