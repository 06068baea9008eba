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
import platformdirs
from numpy.typing import NDArray

from logcl.core.errors import DataError
from logcl.core.settings import ImageShape
from logcl.streams.stream import Task

DECODING_VERSION = 1
"""Increase it when a decoder returns different arrays than before; older entries are then rebuilt."""

_ABANDONED_SECONDS = 24 * 3600


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


def cache_folder() -> Path:
    """The folder for downloads and decoded arrays: LOGCL_CACHE, else the platform's cache folder."""
    override = os.environ.get("LOGCL_CACHE")
    return Path(override).expanduser() if override else platformdirs.user_cache_path("logcl")


def fingerprint(paths: Iterable[Path], *extra: object) -> str:
    """A digest of the names, sizes and modification times of files, and of anything else that matters."""
    digest = hashlib.sha256(repr((DECODING_VERSION, *extra)).encode())
    for path in paths:
        status = path.stat()
        digest.update(
            f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape")
        )
    return digest.hexdigest()[:16]


def name_of(path: Path, *extra: object) -> str:
    """A cache name for user data: readable and unique to the absolute path."""
    digest = hashlib.sha256(repr((str(path.resolve()), *extra)).encode(errors="surrogateescape"))
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '_', path.stem)[:40]}-{digest.hexdigest()[:12]}"


def cached(name: str, mark: str, plan: Callable[[], Blueprint], *, rebuild: bool = False) -> Decoded:
    """The arrays of entry `name` with fingerprint `mark`, decoded by `plan` if they are not cached.

    `rebuild` decodes again in any case. If the decoder fails, nothing is left behind.
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
        except OSError:  # the disk is full; decoding has not started
            return _decode_in_memory(blueprint)
        blueprint.fill(parts)
        del parts  # unmaps the files: Windows cannot rename a folder with open files
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
        raise DataError("the images do not fit into memory; use fewer or smaller ones") from error
    blueprint.fill(parts)
    for part in parts.values():
        part.x.flags.writeable = part.y.flags.writeable = False
    return Decoded(blueprint.classes, parts["train"], parts.get("test"))


def _allocate(blueprint: Blueprint, folder: Path | None) -> dict[str, Task]:
    parts = {}
    for name, size in blueprint.sizes.items():
        x_shape = (size, *blueprint.image_shape)
        if folder is None:
            parts[name] = Task(np.empty(x_shape, np.uint8), np.empty(size, np.int64))
        else:
            x = _new_map(folder / f"{name}_x.npy", np.dtype(np.uint8), x_shape)
            parts[name] = Task(x, _new_map(folder / f"{name}_y.npy", np.dtype(np.int64), (size,)))
    return parts


def _new_map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        # Without reserved blocks, a full disk kills the process when a page cannot be written.
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _start_building(entry: Path) -> Path | None:
    """A new folder beside `entry`, or None if the cache cannot be written."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        for left in entry.parent.glob(".building-*"):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=".building-", dir=entry.parent))
    except OSError:
        return None


def _publish(blueprint: Blueprint, building: Path, entry: Path) -> None:
    """Rename the finished folder to `entry`; if that fails, there is no entry."""
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
    """Remove entries of earlier versions of the same source."""
    same_source = re.compile(re.escape(name) + "-[0-9a-f]{16}")
    with contextlib.suppress(OSError):
        for other in entry.parent.iterdir():
            if other != entry and same_source.fullmatch(other.name):
                shutil.rmtree(other, ignore_errors=True)


def _open_entry(entry: Path) -> Decoded | None:
    """The arrays of an entry as read-only memory maps; None if it is absent or does not match meta.json."""
    try:
        meta = json.loads((entry / "meta.json").read_text(encoding="utf-8"))
        parts = {}
        for name, size in meta["samples"].items():
            x = _open_map(entry / f"{name}_x.npy", meta["bytes"], np.dtype(np.uint8), (size, *meta["shape"]))
            y = _open_map(entry / f"{name}_y.npy", meta["bytes"], np.dtype(np.int64), (size,))
            parts[name] = Task(x, y)
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
