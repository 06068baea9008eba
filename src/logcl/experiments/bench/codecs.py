"""`logcl bench codecs`: bytes, distortion and speed of our codecs and of image files, without classifiers.

One file per image set and codec. A cell that has its file is not measured again; several processes may share
a folder.
"""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image, features

from logcl.codecs import registry
from logcl.core.errors import Busy, DataError, EngineFailed, LogCLError
from logcl.core.files import write_atomically
from logcl.core.images import squared_errors
from logcl.core.progress import Progress
from logcl.core.settings import Frozen, ImageShape, Recipe
from logcl.core.writer_lock import writer_lock
from logcl.experiments.bench.grid import Scale
from logcl.experiments.bench.image_sets import ImageSet
from logcl.experiments.bench.quality import RANGE, Curve, ms_ssim, psnr
from logcl.experiments.result import make_folder
from logcl.experiments.run import _commit, _hardware
from logcl.memory.memory import Memory
from logcl.memory.presets import preset
from logcl.methods.codec_buffer import decompressed
from logcl.streams import Pixels

FAST = "fast"
"""The codec that this preset chooses."""
_TARGETS = (24.0, 26.5, 29.0, 31.5, 34.0)  # dB
_QUALITIES = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100)
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


class Measured(Frozen):
    """A codec on one image set."""

    image_set: str
    source: str
    image_shape: ImageShape
    images: int
    codec: str
    points: tuple[Point, ...]
    peak_bytes: int | None
    """Growth of resident memory during encoding and decoding; None where the system does not tell."""
    command: str
    versions: dict[str, str]
    hardware: dict[str, str | int]
    commit: str | None
    finished: str

    @property
    def ours(self) -> bool:
        """Whether it is a memory rather than image files."""
        return self.codec not in LIBRARIES

    @property
    def curve(self) -> Curve:
        """(PSNR, bytes per image)."""
        return [(point.psnr, point.bytes) for point in self.points]


class Cell(NamedTuple):
    """A codec to measure on an image set."""

    image_set: ImageSet
    codec: str

    @property
    def name(self) -> str:
        """The name of its file, without the scale."""
        return f"{self.image_set.name}-{self.codec}"


class Event(NamedTuple):
    """What became of a cell; of all unfinished cells of a set if that is absent."""

    name: str
    state: Literal["done", "elsewhere", "failed", "absent"]
    problem: str = ""


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


def grid(sets: Sequence[ImageSet], codecs: set[str] | None, scale: Scale) -> list[Cell]:
    """The cells of a bench, set by set."""
    ours, missing = our_codecs(), missing_libraries()
    cells = []
    for image_set in sets:
        channels, height, width = image_set.shape
        files = [name for name, library in LIBRARIES.items() if library.channels in (None, channels)]
        # Training takes minutes per rate, and longer for images that trained codecs are not meant for.
        small = channels * height * width <= (4096 if scale == "full" else 1024)
        ours_here = [name for name in ours if name == FAST or small or not _is_trained(name, image_set.shape)]
        cells += [
            Cell(image_set, name)
            for name in (*ours_here, *(name for name in files if name not in missing))
            if codecs is None or name in codecs
        ]
    return cells


def _is_trained(codec: str, shape: ImageShape) -> bool:
    chosen = preset("fast", shape).codec if codec == FAST else registry.find(codec).Settings.for_images(shape)
    return isinstance(chosen, Recipe)


def path_of(folder: Path, scale: str, cell: Cell) -> Path:
    """The file of a cell."""
    return folder / f"{scale}-{cell.name}.json"


def finished(cells: Sequence[Cell], folder: Path, scale: str) -> dict[str, Measured]:
    """Cells that are measured, by name; files that are damaged or of another source do not count."""
    found = {}
    for cell in cells:
        with suppress(OSError, ValueError):
            measured = Measured.model_validate_json(path_of(folder, scale, cell).read_bytes())
            if measured.source == cell.image_set.source:
                found[cell.name] = measured
    return found


def run(
    cells: Sequence[Cell], folder: Path, scale: Scale, *, command: str, data_dir: Path | None, progress: Progress
) -> Iterator[Event]:
    """Measure the cells that are not finished, each in its own process; yields what became of each.

    Cells that another process is measuring are skipped. A set whose data is absent is reported once.
    """
    make_folder(folder)
    done = finished(cells, folder, scale)
    yield from (Event(name, "done") for name in done)
    for image_set, group in groupby(
        [cell for cell in cells if cell.name not in done], lambda cell: cell.image_set
    ):
        small = np.prod(image_set.shape) <= 3072
        count = {"smoke": 16, "small": 512 if small else 128, "full": 512}[scale]
        try:
            x = image_set.load(count, data_dir, progress)
        except DataError as error:
            yield Event(image_set.name, "absent", str(error))
            continue
        for cell in group:
            path = path_of(folder, scale, cell)
            try:
                with writer_lock(path):
                    points, peak = in_child(measure, x, cell.codec, scale)
                    measured = Measured(
                        image_set=image_set.name, source=image_set.source, image_shape=image_set.shape,
                        images=len(x), codec=cell.codec, points=tuple(points), peak_bytes=peak,
                        command=command, versions=_versions(), hardware={**_hardware(), "threads": 1},
                        commit=_commit(), finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                    )  # fmt: skip
                    write_atomically(path, measured.model_dump_json(indent=1).encode() + b"\n")
                yield Event(cell.name, "done")
            except Busy:
                yield Event(cell.name, "elsewhere")
            except LogCLError as error:
                yield Event(cell.name, "failed", str(error))


def _versions() -> dict[str, str]:
    libraries = {f"lib{name}": features.version(name) for name in ("webp", "avif", "jpg")}
    for package in ("logcl", "torch", "numpy", "pillow", "pillow-jxl-plugin"):
        with suppress(PackageNotFoundError):
            libraries[package] = version(package)
    return {name: str(value) for name, value in libraries.items() if value}


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process, so that no earlier codec's memory counts for this one."""
    default = (signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    with ProcessPoolExecutor(1, get_context("spawn"), signal.signal, default) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            raise EngineFailed(
                "the measuring process was killed; free some memory and run the command again"
            ) from error


def measure(x: Pixels, codec: str, scale: Scale) -> tuple[list[Point], int | None]:
    """A codec at several rates on images (n, C, H, W), and the growth of resident memory in bytes.

    Image files: rising qualities up to the end of `RANGE`. Memories: one quality after the other.
    """
    torch.set_num_threads(1)
    rates = list(_file_rates(codec, scale) if codec in LIBRARIES else _memory_rates(codec, x, scale))
    if codec in LIBRARIES or not _is_trained(codec, (x.shape[1], x.shape[2], x.shape[3])):
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
        yield f"quality {quality}", lambda x, quality=quality: _as_files(x, codec, quality)


def _memory_rates(codec: str, x: Pixels, scale: Scale) -> _Rates:
    trained = _is_trained(codec, (x.shape[1], x.shape[2], x.shape[3]))
    changes: dict[str, Any] = {} if codec == FAST else {"codec.name": codec}
    if trained and scale == "smoke":
        changes |= _FEW_STEPS
    if codec == FAST:
        yield "default", lambda x: _as_memory(x, changes)
        if trained:
            return  # the curve is that of the codec itself
    for target in _TARGETS[1::2] if scale == "smoke" or (trained and scale == "small") else _TARGETS:
        yield f"{target:g} dB", lambda x, target=target: _as_memory(x, {**changes, "codec.psnr": target})


def _as_files(x: Pixels, codec: str, quality: int) -> _Trip:
    library = LIBRARIES[codec]
    if library.format == "JXL":
        import pillow_jxl  # noqa: F401 - registers the format with Pillow
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
    """One task of one unit, so that all samples are in one level; one class, as image files have no labels."""
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
