"""`logcl bench codecs`: bytes, distortion and speed of our codecs and of image files, without classifiers.

One file per image set and codec. A cell that has its file is not measured again; several processes may share
a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from math import prod
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any, Literal, NamedTuple

from PIL import features

from logcl.codecs import registry
from logcl.core.errors import Busy, DataError, EngineFailed, LogCLError
from logcl.core.files import write_atomically
from logcl.core.progress import Progress
from logcl.core.settings import Frozen, ImageShape
from logcl.core.writer_lock import writer_lock
from logcl.experiments.bench.codec_rates import (
    FAST,
    LIBRARIES,
    Point,
    is_trained,
    measure,
    missing_libraries,
    our_codecs,
)
from logcl.experiments.bench.grid import Scale
from logcl.experiments.bench.image_sets import ImageSet
from logcl.experiments.bench.quality import Curve
from logcl.experiments.result import make_folder
from logcl.experiments.run import commit_here, hardware_here


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
    """What became of a cell, or of all unfinished cells of an image set that is absent."""

    name: str
    state: Literal["done", "elsewhere", "failed", "absent"]
    problem: str = ""
    cells: int = 1
    """How many cells it is about."""
    seconds: float | None = None
    """How long measuring took; None if nothing was measured."""


def grid(sets: Sequence[ImageSet], codecs: set[str] | None, scale: Scale) -> list[Cell]:
    """The cells of a bench, set by set."""
    ours, missing = our_codecs(), missing_libraries()
    cells = []
    for image_set in sets:
        channels, height, width = image_set.shape
        files = [name for name, library in LIBRARIES.items() if library.channels in (None, channels)]
        # Training takes minutes per rate, and longer for images that trained codecs are not meant for.
        small = channels * height * width <= (4096 if scale == "full" else 1024)
        ours_here = [
            name
            for name in ours
            if name == FAST
            or (
                registry.find(name).Settings.possible(image_set.shape)
                and (small or not is_trained(name, image_set.shape))
            )
        ]
        cells += [
            Cell(image_set, name)
            for name in (*ours_here, *(name for name in files if name not in missing))
            if codecs is None or name in codecs
        ]
    return cells


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
    cells: Sequence[Cell],
    folder: Path,
    scale: Scale,
    *,
    command: str,
    data_dir: Path | None,
    progress: Progress,
) -> Iterator[Event]:
    """Measure the cells that are not finished, each in its own process; yields what became of each.

    Cells that another process is measuring are skipped. A set whose data is absent is reported once.
    """
    make_folder(folder)
    done = finished(cells, folder, scale)
    yield from (Event(name, "done") for name in done)
    open_cells = [cell for cell in cells if cell.name not in done]
    for image_set, group in groupby(open_cells, lambda cell: cell.image_set):
        mine = list(group)
        small = prod(image_set.shape) <= 3 * 64 * 64
        count = {"smoke": 16, "small": 512 if small else 128, "full": 512}[scale]
        try:
            x = image_set.load(count, data_dir, progress)
        except DataError as error:
            yield Event(image_set.name, "absent", str(error), len(mine))
            continue
        for cell in mine:
            path, began = path_of(folder, scale, cell), monotonic()
            try:
                with writer_lock(path):
                    points, peak = in_child(measure, x, cell.codec, scale)
                    measured = Measured(
                        image_set=image_set.name, source=image_set.source, image_shape=image_set.shape,
                        images=len(x), codec=cell.codec, points=tuple(points), peak_bytes=peak,
                        command=command, versions=_versions(), hardware={**hardware_here(), "threads": 1},
                        commit=commit_here(),
                        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                    )  # fmt: skip
                    write_atomically(path, measured.model_dump_json(indent=1).encode() + b"\n")
                yield Event(cell.name, "done", seconds=monotonic() - began)
            except Busy:
                yield Event(cell.name, "elsewhere")
            except Exception as error:  # noqa: BLE001 - whatever a codec of another package raises
                known = isinstance(error, LogCLError)
                yield Event(cell.name, "failed", str(error) if known else repr(error))


def _versions() -> dict[str, str]:
    libraries = {f"lib{name}": features.version(name) for name in ("webp", "avif", "jpg")}
    for package in ("logcl", "torch", "numpy", "pillow", "pillow-jxl-plugin"):
        with suppress(PackageNotFoundError):
            libraries[package] = version(package)
    return {name: str(value) for name, value in libraries.items() if value}


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process, so that no earlier codec's memory counts for this one."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            raise EngineFailed(
                "the measuring process was killed; free some memory and run the command again"
            ) from error
