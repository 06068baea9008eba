"""What a sample costs here, for `logcl plan --simulate`, and the tables of docs/scale.md.

    LOGCL_DATA=DIR OMP_NUM_THREADS=1 python bench/scale.py   measures: half an hour on one core
    python bench/scale.py --write                            only the tables, from the costs there are
    python bench/scale.py --quick --out costs.json           a try: its figures mean nothing

Measuring writes src/logcl/costs.json and then the tables. It needs MNIST and CIFAR-100 (`logcl data list`)
and a machine that does nothing else. Everything is measured several times with the code that `logcl absorb`
and `logcl train` run, on one thread; the median counts. Work is measured in seconds of the processor, what
goes to the disk in seconds of the clock.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import platform
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import matplotlib
import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from logcl import Memory
from logcl.allocation import Slot
from logcl.core.settings import ImageShape
from logcl.memory.file.sqlite import PAGE
from logcl.memory.forecast.costs import ClassifierCosts, CodecCosts, FileCosts, Machine, Measured, measured
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.samples import raw
from logcl.memory.settings import override
from logcl.nn import networks
from logcl.nn.classification import train_network
from logcl.nn.training import Work, generator_for
from logcl.streams import open_stream
from streams import cpu_name
from tools.scale_page import page

ROOT = Path(__file__).parent.parent
COSTS = ROOT / "src" / "logcl" / "memory" / "forecast" / "costs.json"
PAGE_OF_TABLES = ROOT / "docs" / "scale.md"
REPEATS = 3
FEW = 32
"""Samples of a first task, which is quickly done with."""
QUICK = {"generator.epochs": 1, "generator.min_steps": 4}
"""Settings for what does not depend on how long a model is trained."""
PHOTOGRAPH = (3, 224, 224)
T = TypeVar("T")


def small_digits(count: int) -> np.ndarray:
    """MNIST without its margin, every 3x3 pixels as one: (count, 1, 8, 8)."""
    middle = mnist(count)[:, :, 2:26, 2:26].astype(np.float32)
    return np.rint(middle.reshape(count, 1, 8, 3, 8, 3).mean(axis=(3, 5))).astype(np.uint8)


def mnist(count: int) -> np.ndarray:
    return _some("mnist", count)


def cifar(count: int) -> np.ndarray:
    return _some("cifar100", count)


def tiles(count: int) -> np.ndarray:
    """49 different images of CIFAR-100 in each, seven by seven: more detail than most photographs have."""
    rows = np.arange(49 * count) % 50_000
    grid = cifar(50_000)[rows].reshape(count, 7, 7, 3, 32, 32)
    return np.ascontiguousarray(grid.transpose(0, 3, 1, 4, 2, 5).reshape(count, *PHOTOGRAPH))


def enlarged(count: int) -> np.ndarray:
    """CIFAR-100 seven times as large: less detail than any photograph has."""
    blocks = [
        torch.nn.functional.interpolate(block.float(), PHOTOGRAPH[1:], mode="bicubic")
        .clamp(0, 255)
        .round()
        .to(torch.uint8)
        for block in torch.from_numpy(cifar(count)).split(16)
    ]
    return torch.cat(blocks).numpy()


def photographs(count: int) -> np.ndarray:
    """Windows of the three photographs that scikit-learn and matplotlib bring along, their short side 256."""
    pictures = [Image.fromarray(picture) for picture in load_sample_images().images]
    pictures.append(Image.open(Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"))
    smaller = []
    for picture in pictures:
        width, height = (round(side * 256 / min(picture.size)) for side in picture.size)
        resized = picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        smaller.append(np.asarray(resized).transpose(2, 0, 1))
    rng = np.random.default_rng(0)
    found = np.empty((count, *PHOTOGRAPH), np.uint8)
    for number in range(count):
        picture = smaller[number % len(smaller)]
        top, left = rng.integers(picture.shape[1] - 223), rng.integers(picture.shape[2] - 223)
        found[number] = picture[:, top : top + 224, left : left + 224]
    return found


def _some(stream: str, count: int) -> np.ndarray:
    source = open_stream(stream).source_x
    rows = np.random.default_rng(0).permutation(len(source))[:count]
    return np.ascontiguousarray(source[rows])


@dataclass(frozen=True)
class Kind:
    """Images to measure with."""

    images: Callable[[int], np.ndarray]
    shape: ImageShape
    name: str
    fits: tuple[int, ...]
    """Samples of the levels that are fitted."""
    pooled: int
    """Samples of the level whose main memory is looked at; a power of two times `FEW`."""


KINDS = {
    kind.images.__name__: kind
    for kind in (
        Kind(small_digits, (1, 8, 8), "MNIST in 8x8", (1, 128, 8192), 32768),
        Kind(mnist, (1, 28, 28), "MNIST", (1, 512, 16384), 32768),
        Kind(cifar, (3, 32, 32), "CIFAR-100", (1, 128, 8192), 8192),
        Kind(tiles, PHOTOGRAPH, "tiles: 7x7 images of CIFAR-100 in each", (1, 128, 1024), 512),
        Kind(photographs, PHOTOGRAPH, "windows of three photographs", (1, 128, 1024), 512),
        Kind(enlarged, PHOTOGRAPH, "CIFAR-100 enlarged seven times", (1, 128, 1024), 512),
    )
}
PASSES = {(1, 8, 8): (128, 32), (1, 28, 28): (128, 16), (3, 32, 32): (128, 4), PHOTOGRAPH: (16, 3)}
"""Image shape → samples of a batch and steps. Batches of 128 large images would want six gigabytes."""


def timed(work: Callable[[], T], repeats: int | None = None) -> tuple[float, T]:
    """What the processor spends on it, the median of several times, and what it gives."""
    found = []
    for _ in range(repeats or REPEATS):
        started = time.process_time()
        result = work()
        found.append(time.process_time() - started)
    return statistics.median(found), result


def codec(kind: Kind, quick: bool) -> CodecCosts:
    """Fit, decode and weigh levels of several sizes."""
    settings = preset("fast", kind.shape)
    sizes, pooled = kind.fits, kind.pooled
    if quick:
        settings, sizes, pooled = override(settings, QUICK), (1, 4, 16), 2 * FEW
    x = kind.images(sizes[-1])
    y = np.arange(len(x)) % 100

    def fitted(count: int, start: LocalModel | None) -> LocalModel:
        level = Slot(0, 1, count)
        return LocalModel.fit(level, raw(x[:count], y[:count]), settings, 0, None, start)[0]

    # What is trained goes on where the largest level is; of cosines only the step is taken over.
    first = fitted(sizes[1] if settings.generator.network == "cosine" else sizes[-1], None)
    fits = {count: timed(lambda count=count: fitted(count, first)) for count in sizes}
    large, drawn = fits[sizes[-1]][1], np.random.default_rng(0)

    def draw() -> None:
        large.replay(drawn.integers(1, sizes[-1] + 1, min(128, sizes[-1])))

    few, many = (len(fits[count][1].to_bytes()) * PAGE / (PAGE - 4) for count in sizes[1:])
    a_sample = (many - few) / (sizes[-1] - sizes[1])
    return CodecCosts(
        image_shape=kind.shape,
        network=settings.generator.network,
        images=kind.name,
        fits=tuple((count, _rounded(seconds)) for count, (seconds, _) in fits.items()),
        decode_seconds=_rounded(timed(large.replay)[0] / sizes[-1]),
        fetch_seconds=_rounded(timed(draw, 3 * REPEATS)[0] / min(128, sizes[-1])),
        sample_bytes=_rounded(a_sample),
        level_bytes=_rounded(max(few - a_sample * sizes[1], 0)),
        ram_bytes=_rounded(main_memory(kind, pooled)),
    )


def main_memory(kind: Kind, count: int) -> float:
    """What absorbing a task into one level of `count` samples takes at most, for each sample."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_absorb, (kind.images.__name__, count)) / count


def _absorb(name: str, count: int) -> int:
    """A small task, then a large one, in a fresh process: its peak, less what it had when it began."""
    torch.set_num_threads(1)
    kind, before = KINDS[name], _peak()
    with tempfile.TemporaryDirectory() as folder:
        settings = override(preset("fast", kind.shape), {"unit": FEW, **QUICK})
        memory = Memory.create(Path(folder) / "peak.logcl", settings)
        x, y = kind.images(count), np.arange(count) % 100
        for rows in (slice(0, FEW), slice(FEW, None)):
            memory.absorb(x[rows], y[rows])
    return _peak() - before


def _peak() -> int:
    """Most main memory of this process so far. Not `ru_maxrss`, which begins with that of the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def classifier(shape: ImageShape, quick: bool) -> ClassifierCosts:
    """The preset's classifier, some steps of training."""
    batch, steps = (4, 1) if quick else PASSES[shape]
    settings = preset("fast", shape).classifier.model_copy(
        update={"epochs": 1, "min_steps": steps, "batch_size": batch}
    )
    spec = networks.ClassifierSpec(
        network=settings.network, image_shape=shape, classes=100, width=settings.width
    )
    kind = next(kind for kind in KINDS.values() if kind.shape == shape)
    pixels, labels = torch.from_numpy(kind.images(batch)), torch.arange(batch) % 100

    def train() -> None:
        train_network(
            spec, lambda rows: (pixels[rows], labels[rows]), batch, settings, Work(generator_for(0))
        )

    train()  # the first use of a network is slow
    return ClassifierCosts(
        image_shape=shape,
        network=settings.network,
        width=settings.width,
        weights=networks.weight_count(spec),
        pass_seconds=_rounded(timed(train)[0] / (batch * steps)),
    )


def memory_file(quick: bool) -> FileCosts:
    """A file whose two levels are replaced by one of the same size together."""
    size = 2**16 if quick else 2**26
    content = np.random.default_rng(0).bytes(2 * size)
    commits, syncs, loads, peaks = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(2 * REPEATS - 1):
            memory = Memory(Path(folder) / f"{repeat}.logcl")
            file = memory.file
            file.create({}, {"level-1": content[:size], "level-0": content[size:]})
            started = time.perf_counter()
            file.snapshot()
            loads.append(time.perf_counter() - started)
            with _watched(Path(folder)) as most:
                started = time.perf_counter()
                header = file.commit(file.header(), {}, {"level-2": content}, ["level-1", "level-0"])
                commits.append(time.perf_counter() - started)
            peaks.append(most[0] / file.path.stat().st_size)
            for _ in range(5):
                started = time.perf_counter()
                header = file.commit(header, {}, {"buffer-1": b"next to nothing"}, [])
                syncs.append(time.perf_counter() - started)
            file.path.unlink()
    return FileCosts(
        commit_seconds=_rounded(statistics.median(syncs)),
        commit_rate=_rounded(2 * size / statistics.median(commits)),
        commit_disk=_rounded(max(statistics.median(peaks), 1)),
        load_rate=_rounded(2 * size / statistics.median(loads)),
    )


class _watched:
    """Most bytes that the files of a folder have while the context is open."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.most, self.done = folder, [0], threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self.done.wait(0.002):
            total = 0
            for entry in os.scandir(self.folder):
                try:
                    total += entry.stat().st_size
                except FileNotFoundError:
                    continue  # the journal, just deleted
            self.most[0] = max(self.most[0], total)

    def __enter__(self) -> list[int]:
        self.thread.start()
        return self.most

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


def _rounded(value: float) -> float:
    """Four digits: what is measured here does not deserve more."""
    return float(f"{value:.4g}")


def measure(quick: bool) -> Measured:
    torch.set_num_threads(1)
    codecs = []
    for kind in KINDS.values():
        codecs.append(codec(kind, quick))
        print(codecs[-1], flush=True)
    classifiers = []
    for shape in PASSES:
        classifiers.append(classifier(shape, quick))
        print(classifiers[-1], flush=True)
    machine = Machine(
        command="OMP_NUM_THREADS=1 python bench/scale.py" + " --quick" * quick,
        date=f"{datetime.date.today():%Y-%m-%d}",
        processor=cpu_name(),
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        torch=version("torch"),
        numpy=version("numpy"),
        sqlite=sqlite3.sqlite_version,
    )
    file = memory_file(quick)
    print(file, flush=True)
    return Measured(machine=machine, file=file, codecs=tuple(codecs), classifiers=tuple(classifiers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="measure nothing, only write docs/scale.md")
    parser.add_argument("--quick", action="store_true", help="few samples and steps, to see that it runs")
    parser.add_argument("--out", type=Path, default=COSTS, help="where the costs go; default %(default)s")
    options = parser.parse_args()
    if not options.write:
        found = measure(options.quick)
        options.out.write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
        if options.out != COSTS:
            return
        measured.cache_clear()
    text = PAGE_OF_TABLES.read_text(encoding="utf-8")
    PAGE_OF_TABLES.write_text(page(text, measured()), encoding="utf-8")


if __name__ == "__main__":
    main()
