"""Power cuts and failing disks: a sample of `make torture`, and tests that the harness detects losses."""

import random
import sqlite3
from functools import partial

import pytest

from logcl.core.errors import CannotWrite
from logcl.memory.file.memory_file import MemoryFile
from tests.torture import disk, power
from tests.torture.life import content
from tests.torture.vfs import IOERR_DIR_FSYNC, IOERR_TRUNCATE, Event, Failure, NoShim, Shim, library

try:
    library()
except NoShim as reason:
    pytest.skip(f"no way to stand between SQLite and the disk: {reason}", allow_module_level=True)


@pytest.fixture
def file(tmp_path) -> MemoryFile:
    made = MemoryFile(tmp_path / "m.logcl")
    made.create({"n": 0})
    made.commit(made.header(), {"n": 3}, {"level-1": b"one" * 9000, "level-0": b"zero" * 50}, ())
    return made


def reasons(outcome) -> str:
    return "".join(path.read_text() for path in sorted(outcome.evidence.glob("*/why.txt")))


def test_a_power_cut_leaves_the_memory_before_or_the_one_after(tmp_path):
    outcome = power.trial(220, 0, tmp_path)
    assert outcome.lost == 0, reasons(outcome)
    assert outcome.survived == outcome.tried > 100
    assert outcome.details["rolled back"] > 40
    assert outcome.details["cut again while rolling back"] > 10
    assert outcome.evidence is None


def test_a_disk_that_fails_anywhere_changes_nothing(tmp_path):
    outcome = disk.trial(40, 0, tmp_path)
    assert outcome.lost == 0, reasons(outcome)
    assert outcome.survived == outcome.tried >= 40
    assert {ailment.name for ailment in disk.AILMENTS} <= set(outcome.details)
    assert "real" in outcome.what


# --- the harness finds what it looks for ------------------------------------------------------------------


def careless(monkeypatch, *, synchronous: str = "EXTRA", journal: str = "DELETE") -> None:
    """Make SQLite write less carefully than LogCL requests."""

    class Careless(sqlite3.Connection):
        def execute(self, sql, *parameters):
            if sql.startswith("PRAGMA synchronous"):
                sql = f"PRAGMA synchronous = {synchronous}"
            if sql == "PRAGMA journal_mode":
                sql = "SELECT 'delete'"
            if sql.startswith("BEGIN IMMEDIATE"):
                super().execute(f"PRAGMA journal_mode = {journal}")
            return super().execute(sql, *parameters)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Careless))


def test_without_syncs_memories_are_lost(tmp_path, monkeypatch):
    careless(monkeypatch, synchronous="OFF")
    outcome = power.trial(80, 0, tmp_path)
    assert outcome.lost > 10
    assert outcome.survived + outcome.lost == outcome.tried
    assert "Damaged" in reasons(outcome)


def test_without_a_sync_of_the_folder_a_commit_that_returned_is_undone(tmp_path, monkeypatch):
    """`synchronous = FULL`, SQLite's default, is not enough: the deleted journal may come back."""
    careless(monkeypatch, synchronous="FULL")
    assert "not one that may be there" in reasons(power.trial(400, 0, tmp_path))


def test_without_a_journal_a_full_disk_loses_memories(tmp_path, monkeypatch):
    careless(monkeypatch, journal="OFF")
    outcome = disk.trial(20, 0, tmp_path)
    assert outcome.lost > 5
    assert (outcome.evidence / "01" / "m.logcl").exists()


# --- the shim ---------------------------------------------------------------------------------------------


def test_the_log_of_a_commit_is_that_of_a_rollback_journal(file):
    with Shim() as shim:
        file.commit(file.header(), {"n": 4}, {"level-2": b"two" * 999}, ())
        log = shim.take()
        file.snapshot()
        assert shim.log == []
    journal = str(file.path) + "-journal"
    kinds = [event.kind for event in log if event.kind != "write"]
    assert kinds == ["create", "sync", "sync folder", "sync", "sync", "delete", "sync folder"]
    assert [event.path for event in log if event.kind == "sync"] == [journal, journal, str(file.path)]
    last_of_journal = max(place for place, event in enumerate(log) if event == Event("sync", journal))
    written = [place for place, e in enumerate(log) if e.kind == "write" and e.path == str(file.path)]
    assert last_of_journal < min(written)
    saved = file.path.read_bytes()
    assert all(saved[log[place].at :][: len(log[place].data)] == log[place].data for place in written)


def test_the_shim_leaves_nothing_behind(file):
    with pytest.raises(KeyError), Shim() as shim:
        raise KeyError
    file.write_classifier(b"after")
    assert shim.log == []
    with Shim(), pytest.raises(NoShim, match="not the unix one"), Shim():
        pytest.fail("one shim on top of the other")
    assert file.problems() == []


def test_all_kept_is_what_the_running_system_sees(file):
    before = {file.path.name: file.path.read_bytes()}
    with Shim() as shim:
        file.commit(file.header(), {"n": 4}, {"level-2": b"two" * 999}, ["level-1"])
    model = power.Disk(before)
    for event in shim.log:
        model.step(event)
    kept = model.left([power.Fate.KEPT] * len(model.pending), random.Random(0))
    assert kept == {file.path.name: file.path.read_bytes()}


def test_what_is_not_synced_may_be_lost_torn_or_garbage():
    model, rng = power.Disk({"a": b"old"}), random.Random(0)
    for event in (
        Event("write", "/x/a", 1, b"EW"),
        Event("create", "/x/b"),
        Event("write", "/x/b", 0, b"b" * 1024),
        Event("sync", "/x/b"),
        Event("delete", "/x/a"),
    ):
        model.step(event)
    lost, kept, garbage = power.Fate.LOST, power.Fate.KEPT, power.Fate.GARBAGE
    assert [change.event.kind for change in model.pending] == ["write", "create", "delete"]
    assert model.left([lost, lost, lost], rng) == {"a": b"old"}
    assert model.left([kept, lost, lost], rng) == {"a": b"oEW"}
    assert model.left([lost, kept, kept], rng) == {"b": b"b" * 1024}  # synced, but so far without a name
    model.step(Event("sync folder", "/x/a"))
    model.step(Event("write", "/x/b", 1024, b"more" * 300))
    assert model.left([kept, lost], rng) == {"b": b"b" * 1024}
    assert len(model.left([lost, garbage], rng)["b"]) == 1024 + 1200
    torn = [model.left([lost, power.Fate.TORN], rng)["b"] for _ in range(50)]
    assert {1024 + 512, 1024 + 1024} <= {len(data) for data in torn}
    assert all(data.startswith(b"b" * 1024) for data in torn)


@pytest.mark.parametrize(("kind", "code"), [("truncate", IOERR_TRUNCATE), ("sync folder", IOERR_DIR_FSYNC)])
def test_the_message_that_nothing_changed_is_true(file, kind, code):
    """The file is truncated and the folder synced after the journal has been deleted."""
    before, said = content(file), ""
    with Shim() as shim:
        shim.fail(Failure({kind: code}, 0, lasting=False))
        try:
            file.commit(file.header(), {"n": 4}, {}, ["level-1"])
        except CannotWrite as error:
            said = str(error)
        assert shim.failed
    assert "as it was" not in said or content(file) == before
