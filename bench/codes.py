"""Quality against bytes: every kind of stored code, and image codecs on the same images.

    LOGCL_DATA=... python bench/codes.py [--samples 4096] > results/bench/codes.md

One level of MNIST (two digits) and one of CIFAR-100, each kind of code at several rates. Bytes are those of
the whole level, decoder and tables included, divided by its samples; codecs are counted file by file.
"""

from __future__ import annotations

import argparse
import io
import math
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from logcl.allocation import Slot
from logcl.core.images import squared_errors
from logcl.memory.fitting import Fit
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.samples import raw
from logcl.memory.settings import Settings, override
from logcl.streams import open_stream

CODECS: tuple[tuple[str, tuple[int, ...], dict[str, int | bool]], ...] = (
    ("WEBP", (1, 10, 30, 50, 75), {"method": 6}),
    ("JPEG", (5, 15, 40), {"optimize": True}),
    ("AVIF", (10, 30, 50), {"speed": 4}),
    ("PNG", (0,), {"optimize": True}),
)


def main() -> None:
    """Print one table per data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=4096)
    count = parser.parse_args().samples
    print("# Quality against bytes\n")
    print(f"Made by `python bench/codes.py --samples {count}`: one level of {count:,} samples, labels")
    print("excluded. dB = 10 · log10(1 / mean squared error), on the samples themselves.")
    for name in ("mnist", "cifar100"):
        images = next(iter(open_stream(name, seed=0))).x
        if len(images) < count:
            images = np.concatenate(
                [task.x for _, task in zip(range(4), open_stream(name, seed=0), strict=False)]
            )
        images = np.ascontiguousarray(images[:count])
        print(f"\n## {name}, {images.shape[1]}x{images.shape[2]}x{images.shape[3]}\n")
        print("| code | bytes per sample | dB | seconds |\n|---|---|---|---|")
        for label, size, quality, seconds in [*ours(images), *codecs(images)]:
            print(f"| {label} | {size:.1f} | {quality:.2f} | {seconds:.0f} |", flush=True)


def ours(images: NDArray[np.uint8]) -> Iterator[tuple[str, float, float, float]]:
    """Name, bytes per sample, dB and seconds of each kind of code."""
    channels, height, width = images.shape[1:]
    shape = (channels, height, width)
    values = images[0].size
    small = channels == 1
    learned = {"epochs": 20, "min_steps": 2400, "symbols": 64 if small else 256}
    network = {"network": "mlp", "width": values // 2} if small else {"network": "conv", "width": 48}
    rate = {"learning_rate": 1e-2 if small else 3e-3, "batch_size": 128 if small else 64}
    kinds: list[tuple[str, dict[str, object]]] = []
    for divisor in (48, 28, 16) if small else (24, 12):
        kinds.append(
            (
                f"autoencoder, {network['network']}",
                {"name": "autoencoder", **network, **learned, **rate, "bytes_per_sample": values / divisor},
            )
        )
    for psnr in (18, 22, 26) if small else (24, 26, 28, 30, 34):
        kinds.append(("cosine", {"name": "cosine", "psnr": psnr}))
    for name, changes in kinds:
        settings = override(preset("fast", shape), {f"codec.{key}": value for key, value in changes.items()})
        yield name, *fit(images, settings)


def fit(images: NDArray[np.uint8], settings: Settings) -> tuple[float, float, float]:
    """Bytes per sample, dB and seconds of one level."""
    samples = raw(images, np.zeros(len(images), np.int64))
    began = time.perf_counter()
    model, order = LocalModel.fit(Slot(0, 1, len(images)), samples, settings, 0)
    seconds = time.perf_counter() - began
    errors = squared_errors(images, model.replay()[0].numpy())
    stored = sum(map(len, Fit.of(model, order).parts.values()))
    return stored / len(images), _decibels(float(errors.mean())), seconds


def codecs(images: NDArray[np.uint8]) -> Iterator[tuple[str, float, float, float]]:
    """The same for image files, on up to 1,000 samples."""
    some = images[:: max(len(images) // 1000, 1)]
    for kind, qualities, options in CODECS:
        for quality in qualities:
            began = time.perf_counter()
            total, decoded = 0, np.empty_like(some)
            for row, image in enumerate(some):
                file = io.BytesIO()
                pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
                Image.fromarray(pixels).save(file, kind, quality=quality, **options)
                total += file.tell()
                with Image.open(file) as back:
                    mode = "L" if len(image) == 1 else "RGB"
                    decoded[row] = (
                        np.asarray(back.convert(mode)).reshape(*pixels.shape[:2], -1).transpose(2, 0, 1)
                    )
            name = kind if kind == "PNG" else f"{kind} {quality}"
            error = float(squared_errors(some, decoded).mean())
            yield name, total / len(some), _decibels(error), time.perf_counter() - began


def _decibels(error: float) -> float:
    return math.inf if error == 0 else -10 * math.log10(error)


if __name__ == "__main__":
    main()
