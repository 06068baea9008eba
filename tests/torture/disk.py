"""A disk that fills up or fails at any write of a commit, simulated; and a real one that is too small."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from logcl.core.errors import CannotWrite, LogCLError
from logcl.memory.file.memory_file import MemoryFile
from tests.torture.life import NAME, Recording, examine, read_files, record, run, write_files
from tests.torture.outcome import Outcome, Tally
from tests.torture.vfs import DISK_BROKEN, DISK_FULL, Failure, Shim

_NEVER = 10**9
_BLOCK = 4096  # bytes per page of a tmpfs
_ROOMY = 1 << 28  # bytes
AFTER_THE_COMMIT = "failed after the commit, which stands"
"""Key in the details: after the commit, SQLite shrinks the file and syncs the folder."""

_Case = TypeVar("_Case")


@dataclass(frozen=True)
class Ailment:
    """A way in which a disk fails."""

    name: str
    codes: Mapping[str, int]
    lasting: bool


AILMENTS = (
    Ailment("full for a moment", DISK_FULL, lasting=False),
    Ailment("full", DISK_FULL, lasting=True),
    Ailment("broken for a moment", DISK_BROKEN, lasting=False),
    Ailment("broken", DISK_BROKEN, lasting=True),
)


def trial(states: int | None, seed: int, folder: Path) -> Outcome:
    """Make operations of every kind of commit fail: about `states` of them, or all (None)."""
    rng, tally, place = random.Random(seed), Tally(folder), folder / "state"
    with Shim() as shim:
        recordings = record(shim, folder / "life", seed)
        cases = [
            (recording, ailment, at)
            for recording in recordings
            for ailment in AILMENTS
            for at in range(_operations(shim, recording, ailment, place))
        ]
        for recording, ailment, at in _some(cases, states, rng):
            write_files(place, recording.files)
            shim.fail(Failure(ailment.codes, at, ailment.lasting))
            refusal = _refusal(recording, place, shim)
            shim.fail(None)
            where = f"{recording.step.name}, {ailment.name} at operation {at}"
            _judge(recording, place, shim, tally, where, refusal)
            tally.details[ailment.name] += 1
        mounted = _small_disks(recordings, states, rng, tally, shim)
    for scratch in ("life", "state", "small"):
        shutil.rmtree(folder / scratch)
    return tally.outcome(
        "disk",
        "each write, truncation, sync and deletion of every kind of commit fails, once or from then on: an "
        "error says so and the memory is the one before, or no error if the commit was in the file by then; "
        "the same commit works when the disk does again; "
        + (
            "also on real file systems that are too small"
            if mounted
            else "no real disk: no right to mount one"
        ),
    )


def _some(cases: list[_Case], count: int | None, rng: random.Random) -> list[_Case]:
    return cases if count is None or count >= len(cases) else rng.sample(cases, count)


def _operations(shim: Shim, recording: Recording, ailment: Ailment, place: Path) -> int:
    """Number of operations of a step that can fail in this way."""
    write_files(place, recording.files)
    shim.fail(Failure(ailment.codes, _NEVER, lasting=False))
    run(recording.step, MemoryFile(place / NAME), shim)
    count = shim.counted
    shim.fail(None)
    return count


def _refusal(recording: Recording, place: Path, shim: Shim) -> Exception | None:
    """Run a step that should fail, and return its error."""
    try:
        run(recording.step, MemoryFile(place / NAME), shim)
    except (LogCLError, sqlite3.Error, OSError) as error:
        return error
    return None


def _judge(
    recording: Recording, place: Path, shim: Shim, tally: Tally, where: str, refusal: Exception | None
) -> None:
    """With a working disk, the memory must be as the error claims, and the same step must succeed."""
    files, file = read_files(place), MemoryFile(place / NAME)
    found, wrong = examine(file)
    if not wrong and refusal is None:
        if found == recording.after:
            tally.details[AFTER_THE_COMMIT] += 1
        else:
            wrong = "the failure went unnoticed"
    elif not wrong:
        wrong = _wrong_message(refusal) or ("" if found == recording.before else "another memory than before")
    if not wrong:
        again = _refusal(recording, place, shim) if found == recording.before else None
        found, wrong = examine(file)
        names = sorted(path.name for path in place.iterdir())
        if again:
            wrong = f"the same step fails again: {again}"
        elif found != recording.after:
            wrong = wrong or "the same step came out differently"
        elif names != [NAME]:
            wrong = f"side files are left: {names}"
    tally.count(files, where, wrong)


def _wrong_message(refusal: Exception | None) -> str:
    """What is wrong with the error itself ("" if nothing)."""
    if not isinstance(refusal, CannotWrite):
        return f"another error than CannotWrite: {type(refusal).__name__}: {refusal}"
    sentence = str(refusal)
    if "\n" in sentence or not ("was not changed" in sentence or "nothing was" in sentence):
        return f"the error does not say that nothing changed: {sentence}"
    return ""


# --- a real disk ------------------------------------------------------------------------------------------


def _small_disks(
    recordings: list[Recording], states: int | None, rng: random.Random, tally: Tally, shim: Shim
) -> bool:
    """Run every step on file systems from too small to large enough; False if none can be mounted."""
    place = tally.folder / "small"
    with _mounted(place) as mounted:
        if not mounted:
            return False
        cases = []
        for recording in recordings:
            ends = {name: len(data) for name, data in recording.files.items()}
            least = sum(map(_blocks, ends.values()))
            for event in recording.log:
                name = Path(event.path).name
                ends[name] = max(ends.get(name, 0), event.at + len(event.data))
            enough = sum(map(_blocks, ends.values())) + 1  # the last for the lock file
            cases += [(recording, size * _BLOCK) for size in range(max(least, 1), enough + 1)]
        for recording, size in _some(cases, None if states is None else states // 10, rng):
            _try_size(recording, place, size, tally, shim)
    return True


def _blocks(count: int) -> int:
    return -(-count // _BLOCK)


def _try_size(recording: Recording, place: Path, size: int, tally: Tally, shim: Shim) -> None:
    _resize(place, _ROOMY)
    for path in place.iterdir():
        path.unlink()
    for name, data in recording.files.items():
        (place / name).write_bytes(data)
    if not _resize(place, size):
        return  # the existing files already take more
    refusal = _refusal(recording, place, shim)
    _resize(place, _ROOMY)
    where = f"{recording.step.name} on a disk of {size} bytes"
    if refusal:
        tally.details["real disks, too small"] += 1
        _judge(recording, place, shim, tally, where, refusal)
    else:
        tally.details["real disks, large enough"] += 1
        found, wrong = examine(MemoryFile(place / NAME))
        if not wrong and found != recording.after:
            wrong = "the step came out differently"
        tally.count(read_files(place), where, wrong)


@contextmanager
def _mounted(place: Path) -> Iterator[bool]:
    place.mkdir(parents=True)
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "tmpfs", os.fspath(place)], capture_output=True
        ).returncode
    except OSError:
        done = 1  # no `mount` here
    try:
        yield done == 0
    finally:
        if done == 0:
            subprocess.run(["umount", "-l", os.fspath(place)], check=True)


def _resize(place: Path, size: int) -> bool:
    resized = subprocess.run(["mount", "-o", f"remount,size={size}", os.fspath(place)], capture_output=True)
    return resized.returncode == 0
