"""Power loss: every state of the disk that a power cut in the middle of a commit may leave behind.

A commit is recorded once, as a list of events (`vfs.py`). `Disk` replays it and knows at every event what is
durable and what is only pending, under the assumptions of https://sqlite.org/atomiccommit.html and no others:

- a sync makes the bytes and size of one file durable, not those of other files or of the folder;
- a new, deleted or renamed name is durable after a sync of its folder. The unix VFS syncs it in the first
  sync of a new journal and, with `synchronous = EXTRA`, after a deletion;
- every other change may or may not have reached the disk, in any order; a write may be incomplete, from
  either end; and a file may have its new length before the new bytes (garbage instead).
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from logcl.core.errors import LogCLError
from logcl.memory.file.memory_file import MemoryFile
from tests.torture.life import NAME, Content, Files, Recording, examine, record, write_files
from tests.torture.outcome import Outcome, Tally
from tests.torture.vfs import Event, Shim

_SECTOR = 512
_WRITTEN_AGAIN, _CUT_AGAIN = 0.25, 0.1  # share of the states; share of those that were rolled back
_VARIANTS = ("lost", "kept", "few", "some", "some", "most", "torn", "torn among some")
_ODDS = {"lost": 0.0, "kept": 1.0, "few": 0.1, "some": 0.5, "most": 0.9, "torn": 1.0, "torn among some": 0.5}
"""Probability that a pending change has reached the disk."""


# --- the disk ---------------------------------------------------------------------------------------------


class Fate(Enum):
    """The fate of a pending change."""

    LOST = 0
    KEPT = 1
    TORN = 2
    """A write of which only one end reached the disk."""
    GARBAGE = 3
    """A write whose bytes are lost, although the file has grown."""


@dataclass(frozen=True)
class _Pending:
    event: Event
    inode: int


class Disk:
    """A folder on a disk that may lose power: its durable state and the pending changes."""

    def __init__(self, files: Files) -> None:
        self._bytes = list(files.values())  # durable, by inode: a name may later refer to another file
        self._names = {name: inode for inode, name in enumerate(files)}  # durable
        self._now = dict(self._names)  # as the running system sees it
        self.pending: list[_Pending] = []

    def step(self, event: Event) -> None:
        """Apply one event."""
        name = Path(event.path).name
        if event.kind == "sync folder":
            _rename(self._names, self._take(lambda change: change.event.kind not in _BYTES))
        elif event.kind == "sync":
            inode = self._now[name]
            done = self._take(lambda change: change.inode == inode and change.event.kind in _BYTES)
            changes = [(change.event, Fate.KEPT) for change in done]
            self._bytes[inode] = _written(self._bytes[inode], changes, None)
        else:
            if event.kind == "create":
                self._bytes.append(b"")
            change = _Pending(event, len(self._bytes) - 1 if event.kind == "create" else self._now[name])
            self.pending.append(change)
            _rename(self._now, [change])

    def _take(self, which: Callable[[_Pending], bool]) -> list[_Pending]:
        """Remove pending changes."""
        taken = [change for change in self.pending if which(change)]
        self.pending = [change for change in self.pending if not which(change)]
        return taken

    def left(self, fates: Sequence[Fate], rng: random.Random) -> Files:
        """The files after a power cut now, given one fate per pending change."""
        names = dict(self._names)
        _rename(
            names, [change for change, fate in zip(self.pending, fates, strict=True) if fate is Fate.KEPT]
        )
        files = {}
        for name, inode in names.items():
            changes = [
                (change.event, fate)
                for change, fate in zip(self.pending, fates, strict=True)
                if change.inode == inode and change.event.kind in _BYTES
            ]
            files[name] = _written(self._bytes[inode], changes, rng)
        return files


_BYTES = ("write", "truncate")


def _rename(names: dict[str, int], changes: Sequence[_Pending]) -> None:
    for change in changes:
        event, name = change.event, Path(change.event.path).name
        if event.kind == "create":
            names[name] = change.inode
        elif event.kind == "delete":
            names.pop(name, None)
        elif event.kind == "rename":
            names.pop(name, None)
            names[Path(event.to).name] = change.inode


def _written(durable: bytes, changes: Sequence[tuple[Event, Fate]], rng: random.Random | None) -> bytes:
    """The bytes of a file after the changes that were not lost; a gap reads as zeros."""
    data = bytearray(durable)
    for event, fate in changes:
        if fate is Fate.LOST:
            continue
        if event.kind == "truncate":
            data[event.at :] = bytes(max(event.at - len(data), 0))
            continue
        start, new = event.at, event.data
        if fate is not Fate.KEPT:
            assert rng is not None
            if fate is Fate.GARBAGE:
                start = max(event.at, len(data))
                new = rng.randbytes(max(event.at + len(event.data) - start, 0))
            else:
                start, new = _torn(event, rng)
        if start > len(data) and new:
            data += bytes(start - len(data))
        data[start : start + len(new)] = new
    return bytes(data)


def _torn(event: Event, rng: random.Random) -> tuple[int, bytes]:
    """Offset and bytes that reached the disk: whole sectors, or up to any byte from either end."""
    count = len(event.data)
    if rng.random() < 0.5 and count > _SECTOR:
        cut = rng.randrange(_SECTOR - event.at % _SECTOR, count, _SECTOR)
        return event.at, event.data[:cut]
    cut = rng.randint(0, count)
    return (event.at, event.data[:cut]) if rng.random() < 0.5 else (event.at + cut, event.data[cut:])


def _fates(pending: Sequence[_Pending], variant: str, rng: random.Random) -> list[Fate]:
    odds = _ODDS[variant]
    fates = []
    for change in pending:
        fate = Fate.KEPT if rng.random() < odds else Fate.LOST
        if fate is Fate.LOST and odds and change.event.kind == "write" and rng.random() < 0.25:
            fate = Fate.GARBAGE
        fates.append(fate)
    if variant.startswith("torn") and pending and pending[-1].event.kind == "write":
        fates[-1] = Fate.TORN
    return fates


# --- the trial --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judge:
    shim: Shim
    tally: Tally
    rng: random.Random

    def judge(self, files: Files, allowed: Sequence[Content], where: str, deeper: bool) -> None:
        """Open the files as the next user would, and count the result."""
        place, details = self.tally.folder / "state", self.tally.details
        write_files(place, files)
        file = MemoryFile(place / NAME)
        self.shim.take()
        found, wrong = examine(file)
        recovery = [event for event in self.shim.take() if event.path]
        details["rolled back"] += bool(recovery)
        if not wrong and found not in allowed:
            wrong = "a whole memory, but not one that may be there"
        if not wrong and self.rng.random() < _WRITTEN_AGAIN:
            details["written to again"] += 1
            wrong = _use(file, found)
        self.tally.count(files, where, wrong)
        if deeper and recovery and not wrong and self.rng.random() < _CUT_AGAIN:
            self._cut_the_recovery(files, recovery, found, where)

    def _cut_the_recovery(self, files: Files, log: list[Event], found: Content, where: str) -> None:
        """A second power cut, while SQLite rolls back the commit that the first one interrupted."""
        disk, chosen = Disk(files), set(self.rng.sample(range(len(log)), min(len(log), 8)))
        for point, event in enumerate(log):
            disk.step(event)
            if point in chosen:
                fates = _fates(disk.pending, self.rng.choice(_VARIANTS), self.rng)
                self.tally.details["cut again while rolling back"] += 1
                self.judge(disk.left(fates, self.rng), [found], f"{where}, again at {event.kind}", False)


def _use(file: MemoryFile, found: Content) -> str:
    """Continue to use a memory; returns what is wrong ("" if nothing)."""
    try:
        if found is None:
            file.create({"n": 0})
        else:
            file.commit(file.header(), {"n": 1}, {"buffer-7777": b"more" * 700}, ())
    except (LogCLError, sqlite3.Error, OSError) as error:
        return f"cannot be written again: {error}"
    after, wrong = examine(file)
    expected = {} if found is None else {**found[1], "buffer-7777": b"more" * 700}
    if not wrong and (after is None or after[1] != expected):
        wrong = "something else came out of the next commit"
    names = sorted(path.name for path in file.path.parent.iterdir())
    return wrong or ("" if names == [NAME] else f"side files are left: {names}")


def trial(states: int | None, seed: int, folder: Path) -> Outcome:
    """Cut the power in every kind of commit and check about `states` states, or all (None)."""
    rng = random.Random(seed)
    tally = Tally(folder)
    with Shim() as shim:
        recordings = record(shim, folder / "life", seed)
        for recording, plan in zip(recordings, _plans(recordings, states, rng), strict=True):
            _cut(recording, plan, _Judge(shim, tally, rng))
            tally.details["moments"] += len(plan)
    for scratch in ("life", "state"):
        shutil.rmtree(folder / scratch)
    return tally.outcome(
        "power",
        "the power goes at every write and sync of creating a memory, of commits of four kinds (two also "
        "with a cache that is too small for them) and of saving the classifier; what was not synced is "
        "there, lost, there in part, torn or garbage; then there must be the memory before or the one "
        "after, only the latter once the call has returned; in a tenth of the recoveries the power goes "
        "again",
    )


def _plans(
    recordings: Sequence[Recording], states: int | None, rng: random.Random
) -> list[dict[int, list[str]]]:
    """Per recording: number of events before the cut → number of variants to try there."""
    everything = [
        (which, point, variant)
        for which, recording in enumerate(recordings)
        for point in range(len(recording.log) + 1)
        for variant in _VARIANTS
    ]
    if states is not None and states < len(everything):
        # Most events are similar page writes; half of a small sample is spent on the others.
        rng.shuffle(everything)
        everything.sort(key=lambda one: _is_page_write(recordings[one[0]].log, one[1]))
        rare = everything[: states // 2]
        everything = rare + rng.sample(everything[states // 2 :], states - len(rare))
    plans: list[dict[int, list[str]]] = [{} for _ in recordings]
    for which, point, variant in everything:
        plans[which].setdefault(point, []).append(variant)
    return plans


def _is_page_write(log: Sequence[Event], point: int) -> bool:
    around = log[max(point - 1, 0) : point + 1]
    return len(around) == 2 and all(event.kind == "write" for event in around)


def _cut(recording: Recording, plan: Mapping[int, Sequence[str]], judge: _Judge) -> None:
    disk, last = Disk(recording.files), len(recording.log)
    seen: set[tuple[bool, bytes]] = set()
    for point in range(last + 1):
        if point:
            disk.step(recording.log[point - 1])
        allowed = [recording.after] if point == last else [recording.before, recording.after]
        for variant in plan.get(point, ()):
            files = disk.left(_fates(disk.pending, variant, judge.rng), judge.rng)
            key = (point == last, _fingerprint(files))
            if key not in seen:
                seen.add(key)
                where = f"{recording.step.name}, after event {point} of {last}, {variant}"
                judge.judge(files, allowed, where, deeper=True)


def _fingerprint(files: Files) -> bytes:
    parts = (hashlib.sha256(data).digest() + os.fsencode(name) for name, data in sorted(files.items()))
    return hashlib.sha256(b"".join(parts)).digest()
