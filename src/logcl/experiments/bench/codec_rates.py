"""A codec at several rates on the same images: our codecs through a memory, the others as image files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, features

from logcl.codecs import registry
from logcl.core.images import squared_errors
from logcl.core.settings import Frozen, ImageShape, Recipe
from logcl.experiments.bench.grid import Scale
from logcl.experiments.bench.quality import RANGE, ms_ssim, psnr
from logcl.memory.memory import Memory
from logcl.memory.presets import preset
from logcl.methods.codec_buffer import decompressed
from logcl.streams import Pixels

FAST = "fast"
"""The codec that this preset chooses."""
_TARGETS = (24.0, 26.5, 29.0, 31.5, 34.0)  # dB
_QUALITIES = (0, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)  # 100 is lossless in JPEG XL
_FEW_STEPS = {"codec.epochs": 1, "codec.min_steps": 4}


class Library(NamedTuple):
    """An image file format, and how Pillow writes it."""

    format: str
    options: dict[str, Any]
    channels: int | None = None
    """1: for grey images only; 3: for colour only."""


LIBRARIES = {
    "webp": Library("WEBP", {"method": 6}),
    "avif-400": Library("AVIF", {"subsampling": "4:0:0"}, 1),
    "avif-444": Library("AVIF", {"subsampling": "4:4:4"}, 3),
    "avif-420": Library("AVIF", {"subsampling": "4:2:0"}, 3),
    "jpeg": Library("JPEG", {"optimize": True}, 1),
    "jpeg-444": Library("JPEG", {"optimize": True, "subsampling": "4:4:4"}, 3),
    "jpeg-420": Library("JPEG", {"optimize": True, "subsampling": "4:2:0"}, 3),
    "jxl": Library("JXL", {}),
}


class Point(Frozen):
    """A codec at one rate."""

    rate: str
    """What was asked for: "29 dB", "quality 50", or "default"."""
    codec: str
    """The codec that was used."""
    bytes: float
    """Per image, everything counted."""
    psnr: float
    """In dB, of the squared error averaged over all images."""
    mean_psnr: float
    """In dB, averaged over images."""
    ms_ssim: float
    """Averaged over images."""
    encode_seconds: float
    """CPU time for all images; training included."""
    decode_seconds: float


def our_codecs() -> list[str]:
    """Codecs whose quality can be chosen, and the choice of the preset `fast`."""
    return [FAST, *(name for name in registry.names() if "psnr" in registry.find(name).Settings.model_fields)]


def missing_libraries() -> dict[str, str]:
    """Image file formats that cannot be written here, and what to install."""
    missing = {}
    for name, library in LIBRARIES.items():
        if library.format == "JXL" and find_spec("pillow_jxl") is None:
            missing[name] = "pillow-jxl-plugin is not installed; install logcl[jxl]"
        elif library.format in ("WEBP", "AVIF") and not features.check(library.format.lower()):
            missing[name] = f"this Pillow cannot write {library.format}; install pillow 11.3 or newer"
    return missing


def is_trained(codec: str, shape: ImageShape) -> bool:
    """Whether fitting the codec to images of this shape trains networks."""
    chosen = preset("fast", shape).codec if codec == FAST else registry.find(codec).Settings.for_images(shape)
    return isinstance(chosen, Recipe)


def measure(x: Pixels, codec: str, scale: Scale) -> tuple[list[Point], int | None]:
    """A codec at several rates on images (n, C, H, W), and the growth of resident memory in bytes.

    Image files: rising qualities up to the end of `RANGE`. Memories: one quality after the other.
    """
    torch.set_num_threads(1)
    rates = list(_file_rates(codec, scale) if codec in LIBRARIES else _memory_rates(codec, x, scale))
    if codec in LIBRARIES or not is_trained(codec, (x.shape[1], x.shape[2], x.shape[3])):
        rates[-1][1](x[:2])  # what is only loaded once counts for no rate
    points, grown = [], []
    for rate, coded in rates:
        before = _resident(reset=True)
        trip = coded(x)
        grown.append(_resident("VmHWM") - before)
        errors = squared_errors(x, trip.decoded)
        points.append(
            Point(
                rate=rate, codec=trip.codec, bytes=trip.bytes / len(x), psnr=float(psnr(errors.mean())),
                mean_psnr=float(psnr(errors).mean()), ms_ssim=float(ms_ssim(x, trip.decoded).mean()),
                encode_seconds=trip.encode_seconds, decode_seconds=trip.decode_seconds,
            )
        )  # fmt: skip
        if codec in LIBRARIES and points[-1].psnr > RANGE[1]:
            break
    return points, max(grown) or None


class _Trip(NamedTuple):
    """Images encoded and decoded once."""

    bytes: int
    decoded: Pixels
    encode_seconds: float
    decode_seconds: float
    codec: str


_Rates = Iterator[tuple[str, Callable[[Pixels], _Trip]]]


def _file_rates(codec: str, scale: Scale) -> _Rates:
    for quality in _QUALITIES[::3] if scale == "smoke" else _QUALITIES:
        yield f"quality {quality}", partial(_as_files, codec=codec, quality=quality)


def _memory_rates(codec: str, x: Pixels, scale: Scale) -> _Rates:
    trained = is_trained(codec, (x.shape[1], x.shape[2], x.shape[3]))
    changes: dict[str, Any] = {} if codec == FAST else {"codec.name": codec}
    if trained and scale == "smoke":
        changes |= _FEW_STEPS
    if codec == FAST:
        yield "default", partial(_as_memory, changes=changes)
        if trained:
            return  # the curve is that of the codec itself
    for target in _TARGETS[1::2] if scale == "smoke" or (trained and scale == "small") else _TARGETS:
        yield f"{target:g} dB", partial(_as_memory, changes={**changes, "codec.psnr": target})


def _as_files(x: Pixels, codec: str, quality: int) -> _Trip:
    library = LIBRARIES[codec]
    if library.format == "JXL":
        import_module("pillow_jxl")  # registers the format with Pillow
    began = process_time()
    files = []
    for image in x:
        pixels = image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0))
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, library.format, quality=quality, **library.options)
        files.append(content.getvalue())
    encoded = process_time()
    decoded = np.stack([decompressed(file, x.shape[1]) for file in files])
    return _Trip(sum(map(len, files)), decoded, encoded - began, process_time() - encoded, codec)


def _as_memory(x: Pixels, changes: dict[str, Any]) -> _Trip:
    """One task of one unit, so all samples are in one level; one class, as image files have no labels."""
    with TemporaryDirectory(prefix="logcl-") as folder:
        path, labels = Path(folder) / "memory.logcl", np.zeros(len(x), np.int64)
        began = process_time()
        memory = Memory.open(path, (x.shape[1], x.shape[2], x.shape[3]), unit=len(x), settings=changes)
        absorbed = memory.absorb(x, labels)
        encoded = process_time()
        now = Memory.open(path).snapshot()
        replayed = now.everything()[0].numpy()
        ended = process_time()
        (order,) = absorbed.orders.values()
        decoded = np.empty_like(replayed)
        decoded[order] = replayed
        codec = now.levels[0].about.codec.name
        return _Trip(memory.nbytes(), decoded, encoded - began, ended - encoded, codec)


def _resident(field: str = "VmRSS", *, reset: bool = False) -> int:
    """Bytes of resident memory now, or at most (`VmHWM`) since the last reset; 0 where it is not known."""
    with suppress(OSError):
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0
