"""The life of a memory in a few steps, each recorded as operations on the disk: the input of the trials."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from logcl.core.errors import LogCLError
from logcl.memory.file.memory_file import MemoryFile
from tests.torture.vfs import Event, Shim

NAME = "m.logcl"
Files = dict[str, bytes]
Content = tuple[str, dict[str, bytes], bytes | None] | None
"""Digest of the header, parts, classifier; None if there is no file."""


@dataclass(frozen=True)
class Step:
    """One operation on a memory."""

    name: str
    run: Callable[[MemoryFile], object]
    cache: int | None = None
    """SQLite's cache in pages, if small enough that pages reach the file before the commit."""


def steps(seed: int) -> list[Step]:
    """The steps, with parts of 1 to 60 kB of random bytes; each continues where the last one ended."""
    rng = random.Random(seed)

    def commit(
        name: str, n: int, new: Mapping[str, int], drop: Sequence[str], cache: int | None = None
    ) -> Step:
        parts = {part: rng.randbytes(size) for part, size in new.items()}
        fields = {"n": n, "classes": [str(label) for label in range(n // 100)]}
        return Step(name, lambda file: file.commit(file.header(), fields, parts, drop), cache)

    classifier, work = rng.randbytes(30_000), rng.randbytes(20_000)
    return [
        Step("create", lambda file: file.create({"n": 0, "classes": []})),
        commit("first task", 300, {"level-1": 24_000, "buffer-257": 5_000}, ()),
        commit("another chunk", 340, {"buffer-301": 1_000}, ()),
        commit(
            "levels replaced",
            530,
            {"level-2": 31_000, "buffer-513": 1_700},
            ("level-1", "buffer-257", "buffer-301"),
        ),
        Step("classifier", lambda file: file.write_classifier(classifier)),
        Step("work staged", lambda file: file.stage(file.header(), "level-1", work)),
        commit(
            "no room in the cache", 900, {"level-1": 60_000, "level-0": 9_000, "buffer-897": 1_000}, (), 10
        ),
        commit("shrunk", 1030, {"level-3": 12_000}, ("level-2", "level-1", "level-0", "buffer-897")),
        commit("shrunk again, no room in the cache", 1040, {"buffer-1025": 1_200}, ("level-3",), 10),
    ]


@dataclass(frozen=True)
class Recording:
    """A step that was run once: the state before, its operations on the disk, the state after."""

    step: Step
    files: Files
    log: list[Event]
    before: Content
    after: Content


def record(shim: Shim, folder: Path, seed: int) -> list[Recording]:
    """Run all steps in `folder`, each recorded."""
    folder.mkdir(parents=True)
    folder = folder.resolve()
    file, recordings = MemoryFile(folder / NAME), []
    for step in steps(seed):
        files, before = read_files(folder), content(file)
        shim.take()
        run(step, file, shim)
        log = [event for event in shim.take() if Path(event.path).parent == folder]
        recordings.append(Recording(step, files, log, before, content(file)))
    return recordings


def run(step: Step, file: MemoryFile, shim: Shim) -> None:
    """Run the step; what Python itself does to the folder is added to the shim's log."""
    connect = sqlite3.connect

    def small(*arguments: Any, **options: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*arguments, **options)
        database.execute(f"PRAGMA cache_size = {step.cache}")
        return database

    with _renames_noted(shim), mock.patch("sqlite3.connect", small if step.cache else connect):
        step.run(file)


@contextmanager
def _renames_noted(shim: Shim) -> Iterator[None]:
    """`create` renames the finished file and syncs the folder without SQLite."""
    replace, sync = os.replace, os.fsync

    def noted_replace(old: Any, new: Any) -> None:
        replace(old, new)
        shim.log.append(Event("rename", os.fspath(old), to=os.fspath(new)))

    def noted_path_replace(old: Path, new: Any) -> Path:
        noted_replace(old, new)
        return Path(new)

    def noted_sync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            shim.log.append(Event("sync folder", str(Path(f"/dev/fd/{handle}").resolve() / "*")))
        else:
            sync(handle)

    with (
        mock.patch("os.replace", noted_replace),
        mock.patch.object(Path, "replace", noted_path_replace),  # Python 3.10 does not look it up in `os`
        mock.patch("os.fsync", noted_sync),
    ):
        yield


def content(file: MemoryFile) -> Content:
    """The content of the memory, verified; None if there is no file."""
    if not file.exists():
        return None
    header, parts = file.snapshot()
    return header.digest, parts, file.read_classifier()


def examine(file: MemoryFile) -> tuple[Content, str]:
    """The content of the file, and what is wrong with it ("" if nothing)."""
    try:
        found = content(file)
        return found, "; ".join(file.problems()) if found else ""
    except (LogCLError, sqlite3.Error, OSError) as error:
        return None, f"{type(error).__name__}: {error}"


def read_files(folder: Path) -> Files:
    """Name → bytes of every file."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_files(folder: Path, files: Files) -> None:
    """Recreate the folder with exactly these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
