"""Measure what a sample costs, for `logcl plan --simulate`.

    LOGCL_DATA=DIR OMP_NUM_THREADS=1 python bench/scale.py   half an hour on one core
    python bench/scale.py --quick --out costs.json           a trial run; its figures mean nothing

Writes src/logcl/memory/forecast/costs.json; afterwards update docs/scale.md: `python tools/scale_page.py`.
Needs MNIST and CIFAR-100 (`logcl data list`) and an otherwise idle machine. Everything runs several times on
one thread, with the code behind `logcl absorb` and `logcl train`; the median processor time counts.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import platform
import statistics
import tempfile
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
from training import train_network

from logcl import Memory
from logcl.allocation import Slot
from logcl.cli.plan import codec_of
from logcl.codecs import registry
from logcl.core.settings import ImageShape
from logcl.memory.choosing import choose
from logcl.memory.file.sqlite import PAGES
from logcl.memory.fitting import Fit
from logcl.memory.forecast.costs import ClassifierCosts, CodecCosts, Measured
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.samples import raw
from logcl.memory.settings import applicable, override
from logcl.nn import networks
from logcl.nn.training import Work, generator_for
from logcl.streams import open_stream
from streams import cpu_name

COSTS = Path(__file__).parent.parent / "src" / "logcl" / "memory" / "forecast" / "costs.json"
REPEATS = 3
FEW = 32
"""Samples of a first, small task."""
QUICK = {"codec.epochs": 1, "codec.min_steps": 4}
"""Settings where the length of training does not matter."""
PHOTOGRAPH = (3, 224, 224)
T = TypeVar("T")


def small_digits(count: int) -> np.ndarray:
    """MNIST without its margin, averaged over 3x3 pixels: (count, 1, 8, 8)."""
    middle = mnist(count)[:, :, 2:26, 2:26].astype(np.float32)
    return np.rint(middle.reshape(count, 1, 8, 3, 8, 3).mean(axis=(3, 5))).astype(np.uint8)


def mnist(count: int) -> np.ndarray:
    return _random_images("mnist", count)


def cifar(count: int) -> np.ndarray:
    return _random_images("cifar100", count)


def tiles(count: int) -> np.ndarray:
    """Grids of 7x7 images of CIFAR-100: more detail than most photographs have."""
    rows = np.arange(49 * count) % 50_000
    grid = cifar(50_000)[rows].reshape(count, 7, 7, 3, 32, 32)
    return np.ascontiguousarray(grid.transpose(0, 3, 1, 4, 2, 5).reshape(count, *PHOTOGRAPH))


def enlarged(count: int) -> np.ndarray:
    """CIFAR-100 enlarged seven times: less detail than any photograph has."""
    blocks = [
        torch.nn.functional.interpolate(block.float(), PHOTOGRAPH[1:], mode="bicubic")
        .clamp(0, 255)
        .round()
        .to(torch.uint8)
        for block in torch.from_numpy(cifar(count)).split(16)
    ]
    return torch.cat(blocks).numpy()


def photographs(count: int) -> np.ndarray:
    """Crops of the three photographs in scikit-learn and matplotlib, their short side resized to 256."""
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


def _random_images(stream: str, count: int) -> np.ndarray:
    source = open_stream(stream).source_x
    rows = np.random.default_rng(0).permutation(len(source))[:count]
    return np.ascontiguousarray(source[rows])


@dataclass(frozen=True)
class Kind:
    """One kind of images to measure."""

    images: Callable[[int], np.ndarray]
    shape: ImageShape
    name: str
    fits: tuple[int, ...]
    """Sizes of the levels that are fitted, in samples."""
    ram_samples: int
    """Size of the level whose main memory is measured; a power of two times `FEW`."""


KINDS = {
    kind.images.__name__: kind
    for kind in (
        Kind(small_digits, (1, 8, 8), "MNIST at 8x8", (1, 128, 8192), 32768),
        Kind(mnist, (1, 28, 28), "MNIST", (1, 512, 8192), 4096),
        Kind(cifar, (3, 32, 32), "CIFAR-100", (1, 128, 4096), 2048),
        Kind(tiles, PHOTOGRAPH, "grids of 7x7 CIFAR-100 images", (1, 128, 512), 256),
        Kind(photographs, PHOTOGRAPH, "crops of three photographs", (1, 128, 512), 256),
        Kind(enlarged, PHOTOGRAPH, "CIFAR-100 enlarged seven times", (1, 128, 512), 256),
    )
}
TRAINING = {(1, 8, 8): (128, 32), (1, 28, 28): (128, 16), (3, 32, 32): (128, 4), PHOTOGRAPH: (16, 3)}
"""Image shape → batch size and steps. Batches of 128 large images would need six gigabytes."""


def timed(work: Callable[[], T], repeats: int | None = None) -> tuple[float, T]:
    """Median processor seconds of several calls, and the result of the last."""
    found = []
    for _ in range(repeats or REPEATS):
        started = time.process_time()
        result = work()
        found.append(time.process_time() - started)
    return statistics.median(found), result


def measure_codec(kind: Kind, quick: bool) -> CodecCosts:
    """Fit and decode levels of several sizes."""
    settings = preset("fast", kind.shape)
    sizes, ram_samples = kind.fits, kind.ram_samples
    if quick:
        settings, sizes, ram_samples = override(settings, applicable(settings, QUICK)), (1, 4, 16), 2 * FEW
    x = kind.images(sizes[-1])
    y = np.arange(len(x)) % 100
    settings, _ = choose(settings, x)

    def fitted(count: int, start: LocalModel | None) -> LocalModel:
        level, starts = Slot(0, 1, count), [start.codec] if start else []
        return LocalModel.fit(level, raw(x[:count], y[:count]), settings, 0, None, starts)[0]

    def merged(part: LocalModel) -> LocalModel:
        """The level with nothing new, as a fit that copies its codes."""
        return LocalModel.fit(Slot(0, 1, len(part)), raw(x[:0], y[:0]), settings, 0, merged=[part])[0]

    def stored_bytes(model: LocalModel) -> int:
        return sum(map(len, Fit.of(model, np.arange(len(model))).parts.values()))

    def with_links(count: int) -> float:
        """Bytes in a file: each page of a large part has a link of four bytes to the next."""
        return count * PAGES[-1] / (PAGES[-1] - 4)

    # Networks start from the largest level; of other codecs only a figure is reused, any size will do.
    name, network = codec_of(settings)
    copies = registry.find(name).copies_codes
    if copies:
        few_new = raw(x[: sizes[1]], y[: sizes[1]])
        encode_seconds, first = timed(lambda: LocalModel.fit(Slot(0, 1, sizes[1]), few_new, settings, 0)[0])
        whole = fitted(sizes[-1], first)
        parts = {count: whole.select(np.arange(count)) for count in sizes}
        fits = {count: timed(lambda part=part: merged(part)) for count, part in parts.items()}
    else:
        first = fitted(sizes[-1] if name == "autoencoder" else sizes[1], None)
        fits = {count: timed(lambda count=count: fitted(count, first)) for count in sizes}
    large, drawn = fits[sizes[-1]][1], np.random.default_rng(0)

    def draw() -> None:
        large.replay(drawn.integers(1, sizes[-1] + 1, min(128, sizes[-1])))

    few, many = (with_links(stored_bytes(fits[count][1])) for count in sizes[1:])
    per_sample = (many - few) / (sizes[-1] - sizes[1])
    return CodecCosts(
        image_shape=kind.shape,
        codec=name,
        network=network,
        images=kind.name,
        fits=tuple((count, _rounded(seconds)) for count, (seconds, _) in fits.items()),
        encode_seconds=_rounded(encode_seconds / sizes[1]) if copies else None,
        decode_seconds=_rounded(timed(large.replay)[0] / sizes[-1]),
        fetch_seconds=_rounded(timed(draw, 3 * REPEATS)[0] / min(128, sizes[-1])),
        sample_bytes=_rounded(per_sample),
        level_bytes=_rounded(max(few - per_sample * sizes[1], 0)),
        ram_bytes=_rounded(main_memory(kind, ram_samples)),
    )


def main_memory(kind: Kind, count: int) -> float:
    """Peak bytes per sample of absorbing a task into one level of `count` samples."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_absorb, (kind.images.__name__, count)) / count


def _absorb(name: str, count: int) -> int:
    """Growth of the peak of a fresh process that absorbs a small task, then a large one."""
    torch.set_num_threads(1)
    kind, before = KINDS[name], _peak()
    with tempfile.TemporaryDirectory() as folder:
        settings = preset("fast", kind.shape)
        settings = override(settings, {"unit": FEW, **applicable(settings, QUICK)})
        memory = Memory.create(Path(folder) / "peak.logcl", settings)
        x, y = kind.images(count), np.arange(count) % 100
        for rows in (slice(0, FEW), slice(FEW, None)):
            memory.absorb(x[rows], y[rows])
    return _peak() - before


def _peak() -> int:
    """Peak main memory of this process. Not `ru_maxrss`, which starts at the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measure_classifier(shape: ImageShape, quick: bool) -> ClassifierCosts:
    """Train the preset's classifier for some steps."""
    batch, steps = (4, 1) if quick else TRAINING[shape]
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

    train()  # the first call is slow
    return ClassifierCosts(
        image_shape=shape,
        network=settings.network,
        width=settings.width,
        weights=networks.weight_count(spec),
        train_seconds=_rounded(timed(train)[0] / (batch * steps)),
    )


def _rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


def measure(quick: bool, only: set[str]) -> Measured:
    torch.set_num_threads(1)
    codecs = []
    for kind in (kind for name, kind in KINDS.items() if name in only or not only):
        codecs.append(measure_codec(kind, quick))
        print(codecs[-1], flush=True)
    classifiers = []
    for shape in {} if only else TRAINING:
        classifiers.append(measure_classifier(shape, quick))
        print(classifiers[-1], flush=True)
    machine = {
        "command": " ".join(
            ["OMP_NUM_THREADS=1 python bench/scale.py", *["--quick"] * quick, *(f"--only {n}" for n in only)]
        ),
        "date": f"{datetime.date.today():%Y-%m-%d}",
        "processor": cpu_name(),
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
    }
    return Measured(machine=machine, codecs=tuple(codecs), classifiers=tuple(classifiers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few samples and steps, to check that it runs")
    parser.add_argument("--only", action="append", choices=KINDS, help="codecs of these images, nothing else")
    parser.add_argument(
        "--out", type=Path, default=COSTS, help="where to write the costs; default %(default)s"
    )
    options = parser.parse_args()
    found = measure(options.quick, set(options.only or ()))
    if options.out.exists():  # keep the figures of other codecs
        before = Measured.model_validate_json(options.out.read_text())
        new = {(row.codec, row.images) for row in found.codecs}
        old = [row for row in before.codecs if (row.codec, row.images) not in new]
        found = found.model_copy(
            update={
                "codecs": (*found.codecs, *old),
                "classifiers": found.classifiers or before.classifiers,
                "machine": before.machine if options.only else found.machine,
            }
        )
    options.out.write_text(found.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
