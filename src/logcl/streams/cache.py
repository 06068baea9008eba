"""A cache of decoded data sets as memory maps, so that archives and images are decoded only once.

An entry is a folder `<name>-<fingerprint>` of `.npy` files and a `meta.json`. It is built under a temporary
name and renamed when complete: readers see a whole entry or none, and two processes may build the same one
(the second finds the first's and drops its own). The cache is optional: if its folder cannot be written, the
arrays are decoded into main memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from numpy.typing import NDArray

from logcl.core.errors import DataError
from logcl.core.files import cache_folder
from logcl.core.settings import ImageShape
from logcl.streams.stream import Pixels, Task

DECODING_VERSION = 1
"""Increase it when a decoder returns different arrays than before; older entries are then rebuilt."""

_BUILDING = ".building-"


@dataclass(frozen=True, eq=False)
class Decoded:
    """A data set as arrays; `test` is None if the source has no test set."""

    classes: tuple[str, ...]
    train: Task
    test: Task | None


@dataclass(frozen=True)
class Blueprint:
    """Sizes of a data set, known before any pixel is read, and the function that decodes it."""

    classes: tuple[str, ...]
    image_shape: ImageShape
    sizes: Mapping[str, int]
    """Number of samples of "train" and, if the source has a test set, of "test"."""
    fill: Callable[[Mapping[str, Task]], None]


def blueprint_of(classes: tuple[str, ...], **parts: tuple[Pixels, NDArray[Any]]) -> Blueprint:
    """The blueprint of images (n, C, H, W) and class indices (n,) that are in memory already."""

    def fill(out: Mapping[str, Task]) -> None:
        for name, (x, y) in parts.items():
            out[name].x[:], out[name].y[:] = x, y

    channels, height, width = parts["train"][0].shape[1:]
    sizes = {name: len(y) for name, (_, y) in parts.items()}
    return Blueprint(classes, (channels, height, width), sizes, fill)


def fingerprint(paths: Iterable[Path], *extra: object) -> str:
    """A digest of the names, sizes and modification times of files, of Pillow's version and of `extra`.

    Of a folder, the files two levels below count.
    """
    digest = hashlib.sha256(repr((DECODING_VERSION, PIL.__version__, *extra)).encode())
    for path in paths:
        for file in sorted(path.glob("*/*/*")) if path.is_dir() else [path]:
            status = file.stat()
            line = f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\n"
            digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def name_of(path: Path, *extra: object) -> str:
    """A cache name for user data: readable and unique to the absolute path."""
    digest = hashlib.sha256(repr((str(path.resolve()), *extra)).encode(errors="surrogateescape"))
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '_', path.stem)[:40]}-{digest.hexdigest()[:12]}"


def cached(name: str, mark: str, plan: Callable[[], Blueprint], *, rebuild: bool = False) -> Decoded:
    """The arrays of entry `name` with fingerprint `mark`, decoded by `plan` if they are not cached.

    `rebuild` decodes again in any case. If the decoder fails, nothing is left behind.
    """
    streams = cache_folder() / "streams"
    entry = streams / f"{name}-{mark}"
    if rebuild:
        shutil.rmtree(entry, ignore_errors=True)
    found = _open_entry(entry)
    if found is not None:
        return found
    blueprint = plan()
    with contextlib.suppress(OSError):  # the folder cannot be written or the disk is full: no cache
        streams.mkdir(parents=True, exist_ok=True)
        _sweep(streams, name, entry)
        with tempfile.TemporaryDirectory(prefix=_BUILDING, dir=streams, ignore_cleanup_errors=True) as folder:
            building = Path(folder, "new")
            building.mkdir()
            parts = _allocate(blueprint, building)
            blueprint.fill(parts)
            del parts  # unmaps the files: Windows cannot rename a folder with open files
            if _open_entry(entry) is None:
                _seal(blueprint, building)
                if entry.exists():
                    entry.rename(Path(folder, "damaged"))
                building.rename(entry)
    found = _open_entry(entry)
    return found if found is not None else _decode_in_memory(blueprint)


def _decode_in_memory(blueprint: Blueprint) -> Decoded:
    try:
        parts = _allocate(blueprint, None)
    except MemoryError as error:
        raise DataError("the images do not fit into memory; use fewer or smaller ones") from error
    blueprint.fill(parts)
    for part in parts.values():
        part.x.flags.writeable = part.y.flags.writeable = False
    return Decoded(blueprint.classes, parts["train"], parts.get("test"))


def _allocate(blueprint: Blueprint, folder: Path | None) -> dict[str, Task]:
    """Arrays to fill: files in `folder`, or in memory."""

    def new(name: str, dtype: type, *shape: int) -> NDArray[Any]:
        if folder is None:
            return np.empty(shape, dtype)
        path = folder / f"{name}.npy"
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        if hasattr(os, "posix_fallocate"):
            # Without reserved blocks, a full disk kills the process when a page cannot be written.
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return array

    return {
        name: Task(new(f"{name}_x", np.uint8, size, *blueprint.image_shape), new(f"{name}_y", np.int64, size))
        for name, size in blueprint.sizes.items()
    }


def _seal(blueprint: Blueprint, building: Path) -> None:
    """Describe the arrays in meta.json and write everything to disk."""
    meta = {"classes": blueprint.classes, "shape": blueprint.image_shape, "samples": dict(blueprint.sizes)}
    (building / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    for file in building.iterdir():
        with file.open("r+b") as handle:
            os.fsync(handle.fileno())


def _sweep(streams: Path, name: str, entry: Path) -> None:
    """Remove abandoned builds, and entries of earlier versions of the same source."""
    same_source = re.compile(re.escape(name) + "-[0-9a-f]{16}")
    with contextlib.suppress(OSError):  # another process may remove them as well
        for other in streams.iterdir():
            abandoned = other.name.startswith(_BUILDING) and time.time() - other.stat().st_mtime > 24 * 3600
            if abandoned or (other != entry and same_source.fullmatch(other.name)):
                shutil.rmtree(other, ignore_errors=True)


def _open_entry(entry: Path) -> Decoded | None:
    """The arrays of an entry as read-only memory maps; None if it is absent or does not match meta.json."""
    try:
        meta = json.loads((entry / "meta.json").read_text(encoding="utf-8"))
        parts = {}
        for name, size in meta["samples"].items():
            x = _open_map(entry / f"{name}_x.npy", np.uint8, size, *meta["shape"])
            parts[name] = Task(x, _open_map(entry / f"{name}_y.npy", np.int64, size))
        return Decoded(tuple(meta["classes"]), parts["train"], parts.get("test"))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _open_map(path: Path, dtype: type, *shape: int) -> NDArray[Any]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if (array.dtype, array.shape, array.offset + array.nbytes) != (dtype, shape, path.stat().st_size):
        raise ValueError(f"{path} is damaged")
    return np.asarray(array)
