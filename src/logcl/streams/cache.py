"""Decoded data sets kept as memory maps, so that the second start reads no archive.

One entry is a folder `<name>-<fingerprint>` of `.npy` files and a `meta.json`. It is built under another name
and renamed when complete: readers see a whole entry or none, and two processes that build the same one are
safe (the second finds the first's and drops its own). Nothing here is needed: without a writable cache folder
the same arrays are made in memory.
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
import platformdirs
from numpy.typing import NDArray

from logcl.core.errors import DataError
from logcl.core.settings import ImageShape
from logcl.streams.stream import Classes, Pixels

DECODING_VERSION = 1
"""Raise it when any decoder gives other arrays than before: older entries are then rebuilt."""

_ABANDONED_SECONDS = 24 * 3600


@dataclass(frozen=True, eq=False)
class Part:
    """Images `x` (n, C, H, W) and their class indices `y` (n,)."""

    x: Pixels
    y: Classes


@dataclass(frozen=True, eq=False)
class Decoded:
    """A data set as arrays; `test` is None where the source has no test part of its own."""

    classes: tuple[str, ...]
    train: Part
    test: Part | None


@dataclass(frozen=True)
class Blueprint:
    """What decoding will give, known before a pixel is read, and the function that fills it in."""

    classes: tuple[str, ...]
    image_shape: ImageShape
    sizes: Mapping[str, int]
    """Samples of "train" and, if the source has one, of "test"."""
    fill: Callable[[Mapping[str, Part]], None]


def cache_folder() -> Path:
    """Where downloads and decoded arrays are kept: LOGCL_CACHE, else the platform's cache folder."""
    override = os.environ.get("LOGCL_CACHE")
    return Path(override).expanduser() if override else platformdirs.user_cache_path("logcl")


def fingerprint(paths: Iterable[Path], *extra: object) -> str:
    """A digest of the names, sizes and modification times of files, and of what else decides the arrays."""
    digest = hashlib.sha256(repr((DECODING_VERSION, *extra)).encode())
    for path in paths:
        status = path.stat()
        digest.update(
            f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape")
        )
    return digest.hexdigest()[:16]


def name_of(path: Path, *extra: object) -> str:
    """A cache name for user data: readable, and different for every absolute path."""
    digest = hashlib.sha256(repr((str(path.resolve()), *extra)).encode(errors="surrogateescape"))
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '_', path.stem)[:40]}-{digest.hexdigest()[:12]}"


def cached(name: str, mark: str, plan: Callable[[], Blueprint], *, rebuild: bool = False) -> Decoded:
    """The arrays of entry `name` with fingerprint `mark`, decoded by `plan` if they are not there yet.

    `rebuild` decodes anew whatever is there. Errors of the decoder leave nothing behind.
    """
    entry = cache_folder() / "streams" / f"{name}-{mark}"
    found = None if rebuild else _open_entry(entry)
    if found is not None:
        return found
    blueprint = plan()
    building = _start_building(entry)
    if building is None:
        return _decode_in_memory(blueprint)
    try:
        try:
            parts = _allocate(blueprint, building)
        except OSError:  # no room on the disk: decoding itself has not begun
            return _decode_in_memory(blueprint)
        blueprint.fill(parts)
        del parts  # unmaps the files: Windows renames no folder with open files
        if not rebuild and (found := _open_entry(entry)) is not None:
            return found
        _publish(blueprint, building, entry)
        _drop_outdated(name, entry)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    found = _open_entry(entry)
    return found if found is not None else _decode_in_memory(blueprint)


def _decode_in_memory(blueprint: Blueprint) -> Decoded:
    try:
        parts = _allocate(blueprint, None)
    except MemoryError as error:
        raise DataError("The images do not fit into memory; make them fewer or smaller.") from error
    blueprint.fill(parts)
    for part in parts.values():
        part.x.flags.writeable = part.y.flags.writeable = False
    return Decoded(blueprint.classes, parts["train"], parts.get("test"))


def _allocate(blueprint: Blueprint, folder: Path | None) -> dict[str, Part]:
    parts = {}
    for name, size in blueprint.sizes.items():
        x_shape = (size, *blueprint.image_shape)
        if folder is None:
            parts[name] = Part(np.empty(x_shape, np.uint8), np.empty(size, np.int64))
        else:
            x = _new_map(folder / f"{name}_x.npy", np.dtype(np.uint8), x_shape)
            parts[name] = Part(x, _new_map(folder / f"{name}_y.npy", np.dtype(np.int64), (size,)))
    return parts


def _new_map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        # Without reserved blocks a full disk would kill the process at the first page it cannot write.
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _start_building(entry: Path) -> Path | None:
    """A new folder beside `entry`, or None when the cache cannot be written."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        for left in entry.parent.glob(".building-*"):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=".building-", dir=entry.parent))
    except OSError:
        return None


def _publish(blueprint: Blueprint, building: Path, entry: Path) -> None:
    """Make the finished folder visible as `entry`; if that fails there is simply no entry."""
    try:
        sizes = {file.name: file.stat().st_size for file in building.iterdir()}
        meta = {
            "classes": blueprint.classes,
            "shape": blueprint.image_shape,
            "samples": dict(blueprint.sizes),
        }
        (building / "meta.json").write_text(json.dumps({**meta, "bytes": sizes}), encoding="utf-8")
        for file in building.iterdir():
            with file.open("r+b") as handle:
                os.fsync(handle.fileno())
        if entry.exists():
            damaged = Path(tempfile.mkdtemp(prefix=".building-", dir=entry.parent))
            entry.rename(damaged / "old")
            shutil.rmtree(damaged, ignore_errors=True)
        building.rename(entry)
    except OSError:
        return


def _drop_outdated(name: str, entry: Path) -> None:
    """Remove entries of the same source as it was earlier."""
    same_source = re.compile(re.escape(name) + "-[0-9a-f]{16}")
    with contextlib.suppress(OSError):
        for other in entry.parent.iterdir():
            if other != entry and same_source.fullmatch(other.name):
                shutil.rmtree(other, ignore_errors=True)


def _open_entry(entry: Path) -> Decoded | None:
    """The arrays of an entry as read-only memory maps; None if it is absent or not what meta.json says."""
    try:
        meta = json.loads((entry / "meta.json").read_text(encoding="utf-8"))
        parts = {}
        for name, size in meta["samples"].items():
            x = _open_map(entry / f"{name}_x.npy", meta["bytes"], np.dtype(np.uint8), (size, *meta["shape"]))
            y = _open_map(entry / f"{name}_y.npy", meta["bytes"], np.dtype(np.int64), (size,))
            parts[name] = Part(x, y)
        return Decoded(tuple(meta["classes"]), parts["train"], parts.get("test"))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _open_map(
    path: Path, sizes: Mapping[str, int], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if path.stat().st_size != sizes[path.name] or array.dtype != dtype or array.shape != shape:
        raise ValueError(f"{path} is damaged")
    return array.view(np.ndarray)
