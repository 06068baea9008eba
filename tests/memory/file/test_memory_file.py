"""The memory file: atomic commits, one writer, and every altered byte detected."""

import contextlib
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl.core.errors import Busy, CannotWrite, Damaged, LogCLError, NewerFormat, NotAMemory
from logcl.memory.file.carving import find_intact
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.file.sqlite import write_errors
from tests.helpers import page_of

FIELDS = {"n": 0, "what": "é ∀"}


@pytest.fixture
def file(tmp_path) -> MemoryFile:
    made = MemoryFile(tmp_path / "m.logcl")
    made.create(FIELDS)
    made.commit(made.header(), {"n": 3}, {"level-1": b"one" * 900, "level-0": b"zero" * 50}, ())
    return made


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(file: MemoryFile) -> tuple:
    header, parts = file.snapshot()
    return header.digest, dict(header.fields), parts


def test_a_new_file_is_empty_and_alone(tmp_path):
    file = MemoryFile(tmp_path / "new.logcl")
    assert not file.exists()
    file.create(FIELDS)
    assert content(file)[1:] == (FIELDS, {})
    assert file.problems() == []
    assert names(tmp_path) == ["new.logcl"]


def test_leftovers_of_a_killed_creator_are_removed(tmp_path):
    file = MemoryFile(tmp_path / "new.logcl")
    (tmp_path / ".new.logcl.new").write_bytes(b"half a database")
    (tmp_path / ".new.logcl.new-journal").write_bytes(b"half a journal")
    (tmp_path / "new.logcl.lock").write_text("dead")
    file.create(FIELDS)
    assert file.problems() == []
    assert names(tmp_path) == ["new.logcl"]


def test_a_commit_replaces_parts_and_leaves_no_side_files(file):
    header = file.header()
    after = file.commit(header, {"n": 9}, {"level-2": b"two"}, ["level-1", "level-0"])
    assert content(file) == (after.digest, {"n": 9}, {"level-2": b"two"})
    assert names(file.path.parent) == ["m.logcl"]
    assert file.problems() == []


def test_the_file_shrinks_again(file):
    small = file.path.stat().st_size
    header = file.commit(file.header(), {"n": 4}, {"level-5": os.urandom(10**6)}, ())
    assert file.path.stat().st_size > 10**6
    file.commit(header, {"n": 3}, {}, ["level-5"])
    assert file.path.stat().st_size <= small + 2048


def test_the_digest_depends_on_the_content_not_on_the_pages(tmp_path):
    digests = []
    for name, detour in (("a", False), ("b", True)):
        file = MemoryFile(tmp_path / name)
        file.create(FIELDS)
        if detour:
            file.commit(file.header(), {"n": 1}, {"level-7": b"x" * 5000}, ())
        drop = ["level-7"] if detour else []
        digests.append(file.commit(file.header(), {"n": 2}, {"level-0": b"same"}, drop).digest)
    assert digests[0] == digests[1]


def test_only_unknown_parts_are_read_again(file):
    header, parts = file.snapshot()
    _, again = file.snapshot(known=[header.parts["level-1"]])
    assert set(parts) == {"level-0", "level-1"}
    assert set(again) == {"level-0"}


def test_a_commit_on_a_stale_header_changes_nothing(file):
    stale = file.header()
    file.commit(stale, {"n": 4}, {}, ())
    before = content(file)
    with pytest.raises(CannotWrite, match="changed by another program"):
        file.commit(stale, {"n": 5}, {"level-9": b"lost"}, ["level-0"])
    assert content(file) == before


def test_an_error_inside_a_commit_changes_nothing(file):
    before = content(file)
    with pytest.raises(TypeError):
        file.commit(file.header(), {"n": 5, "bad": object()}, {"level-9": b"lost"}, ["level-0"])
    assert content(file) == before


def test_the_classifier_is_not_part_of_the_content(file):
    before = file.header().digest
    assert file.read_classifier() is None
    file.write_classifier(b"weights")
    file.write_classifier(b"better weights")
    assert file.read_classifier() == b"better weights"
    assert file.header().digest == before
    assert file.sizes()["classifier"] == len(b"better weights")
    assert file.problems() == []


def test_creating_at_an_occupied_path_is_refused(file):
    before = content(file)
    with pytest.raises(CannotWrite, match="already exists"):
        file.create(FIELDS)
    assert content(file) == before


@pytest.mark.parametrize("made", ["text", "empty", "another database", "folder", "nothing"])
def test_what_is_not_a_memory(tmp_path, made):
    path = tmp_path / "x.logcl"
    if made == "text":
        path.write_text("These are not the bytes you are looking for. " * 99)
    elif made == "empty":
        path.touch()
    elif made == "another database":
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE parts (name, digest, data)")
        database.close()
    elif made == "folder":
        path.mkdir()
    before = path.read_bytes() if path.is_file() else None
    for read in (MemoryFile(path).header, MemoryFile(path).problems):
        with pytest.raises(NotAMemory, match=r"x\.logcl"):
            read()
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_newer_format_is_named(file):
    with sqlite3.connect(file.path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(NewerFormat, match=r"format 99.*upgrade"):
        file.header()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(CannotWrite, match="does not exist"):
        MemoryFile(tmp_path / "no" / "m.logcl").create(FIELDS)


HOLD = """
import sys, time
from logcl.memory.file.carving import find_intact
from logcl.memory.file.memory_file import MemoryFile
with MemoryFile(sys.argv[1]).writing():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(file):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(file.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_writer_is_refused_with_the_holders_name_and_readers_continue(file, holder):
    with pytest.raises(Busy, match=rf"process {holder.pid} on .*since 20"), file.writing():
        pytest.fail("two writers")
    assert content(file)[1] == {"n": 3}


def test_a_link_to_the_file_leads_to_the_same_lock(file, holder, tmp_path):
    link = tmp_path / "elsewhere" / "link.logcl"
    link.parent.mkdir()
    link.symlink_to(file.path)
    refused = rf"link\.logcl is being written by process {holder.pid} on"
    with pytest.raises(Busy, match=refused), MemoryFile(link).writing():
        pytest.fail("two writers")
    assert MemoryFile(link).header() == file.header()
    assert names(link.parent) == ["link.logcl"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks of an open file")
def test_two_names_of_one_file_have_one_lock(file, holder, tmp_path):
    link = tmp_path / "elsewhere" / "link.logcl"
    link.parent.mkdir()
    os.link(file.path, link)
    refused = r"link\.logcl is being written by another process under another name of the same file"
    with pytest.raises(Busy, match=refused), MemoryFile(link).writing():
        pytest.fail("two writers")
    holder.kill()
    holder.wait()
    for name, n in ((link, 4), (file.path, 5)):
        one = MemoryFile(name)
        with one.writing():
            one.commit(one.header(), {"n": n}, {f"level-{n}": b"new"}, ())
    assert set(MemoryFile(link).header().parts) == {"level-0", "level-1", "level-4", "level-5"}
    assert names(link.parent) == ["link.logcl"]


def test_a_file_that_was_replaced_has_its_own_lock(file, holder, tmp_path):
    """The name is still locked, and so is the new file afterwards."""
    copy = tmp_path / "copy.logcl"
    copy.write_bytes(file.path.read_bytes())
    copy.replace(file.path)
    with pytest.raises(Busy, match=f"process {holder.pid} on"), file.writing():
        pytest.fail("two writers")
    holder.kill()
    holder.wait()
    with file.writing():
        file.commit(file.header(), {"n": 4}, {}, ())
    assert file.problems() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX locks")
def test_releasing_a_lock_does_not_release_those_of_an_open_transaction(file):
    """Closing any handle of a file drops all POSIX locks of the process: SQLite's, in another thread."""
    with file.at_one_moment() as now:
        now.header()
        with file.writing():
            pass
        code = f"""
import sqlite3
database = sqlite3.connect({str(file.path)!r}, timeout=0, isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
"""
        beside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "database is locked" in beside.stderr
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_dangling_link_is_written_through(tmp_path):
    target, link = tmp_path / "disk" / "real.logcl", tmp_path / "m.logcl"
    link.symlink_to(target)
    with pytest.raises(CannotWrite, match=r"the folder .*disk does not exist"):
        MemoryFile(link).create(FIELDS)
    target.parent.mkdir()
    MemoryFile(link).create(FIELDS)
    assert link.is_symlink()
    assert MemoryFile(target).header() == MemoryFile(link).header()
    assert names(target.parent) == ["real.logcl"]
    assert names(tmp_path) == ["disk", "m.logcl"]


def test_a_link_that_leads_to_itself_is_refused(tmp_path):
    link = tmp_path / "m.logcl"
    link.symlink_to(link)
    with pytest.raises(NotAMemory, match="leads back to itself"):
        MemoryFile(link).create(FIELDS)
    assert link.is_symlink()


def test_a_new_memory_comes_into_being_with_its_first_transaction(tmp_path):
    file = MemoryFile(tmp_path / "m.logcl", FIELDS)
    assert content(file)[1:] == (FIELDS, {})
    assert file.staged() == {}
    with pytest.raises(KeyError), file.writing():
        raise KeyError
    assert names(tmp_path) == []
    before = file.header()
    with file.writing():
        file.stage(before, "level-0", b"work")
        assert file.staged() == {"level-0": b"work"}
        file.commit(before, {"n": 1}, {"level-0": b"zero"}, ())
    assert content(file)[1:] == ({"n": 1}, {"level-0": b"zero"})
    file.path.unlink()
    with pytest.raises(NotAMemory, match="does not exist"):
        file.header()


def test_a_memory_that_another_process_created_is_used_if_its_settings_agree(tmp_path):
    alike, other = (MemoryFile(tmp_path / "m.logcl", {"n": 0, "what": what}) for what in ("é ∀", "else"))
    MemoryFile(tmp_path / "m.logcl").create(FIELDS)
    with pytest.raises(CannotWrite, match="created by another process with other settings"), other.writing():
        pytest.fail("another memory")
    with alike.writing():
        alike.commit(alike.header(), {"n": 1}, {"level-0": b"zero"}, ())
    assert content(alike)[1] == {"n": 1}


@pytest.mark.parametrize("write", ["commit", "stage", "drop_staged", "write_classifier"])
def test_nothing_is_written_to_a_file_that_replaced_the_memory(file, tmp_path, write):
    before = file.header()
    other = MemoryFile(tmp_path / "other.logcl")
    other.create({"n": 0, "what": "another"})
    other.path.replace(file.path)
    there = content(file)
    writes = {
        "commit": lambda: file.commit(before, {"n": 4}, {"level-2": b"two"}, ()),
        "stage": lambda: file.stage(before, "level-0", b"work"),
        "drop_staged": lambda: file.drop_staged(before),
        "write_classifier": lambda: file.write_classifier(b"weights", lambda header, _: header == before),
    }
    with pytest.raises(CannotWrite, match=r"changed by another program|replaced by another memory"):
        writes[write]()
    assert content(file) == there
    assert (file.staged(), file.read_classifier()) == ({}, None)


def test_the_same_commit_by_another_program_is_not_taken_for_ours(file):
    before = file.header()
    file.commit(before, {"n": 9}, {"level-2": b"two"}, ())
    with pytest.raises(CannotWrite, match="changed by another program"):
        file.commit(before, {"n": 9}, {"level-2": b"two"}, ())


def test_several_reads_at_one_moment(file):
    with file.at_one_moment() as now:
        header = now.header()
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(COMMIT), str(file.path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        sizes, (again, parts), held = now.sizes(), now.snapshot(), now.file_bytes()
        assert again == header
        assert set(header.parts) == set(parts) == set(sizes) - {"header", "header-copy"}
    writer.communicate(timeout=60)
    assert writer.returncode == 0
    assert file.header().fields == {"n": 8}
    assert held > file.file_bytes() == file.path.stat().st_size


COMMIT = """
import sys
from logcl.memory.file.carving import find_intact
from logcl.memory.file.memory_file import MemoryFile
file = MemoryFile(sys.argv[1])
before = file.header()
print("ready", flush=True)
file.commit(before, {"n": 8}, {}, list(before.parts))
"""


def test_a_lock_that_is_a_link_is_not_followed(file, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    (tmp_path / "m.logcl.lock").symlink_to(precious)
    with pytest.raises(CannotWrite, match="cannot be locked"), file.writing():
        pytest.fail("it was followed")
    assert precious.read_text() == "keep me"


def test_a_killed_writer_leaves_no_lock(file, holder):
    holder.kill()
    holder.wait()
    with file.writing():
        file.commit(file.header(), {"n": 4}, {}, ())
    assert names(file.path.parent) == ["m.logcl"]


DIE_IN_COMMIT = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")   # dirty pages go to the file before the commit
database.execute("BEGIN IMMEDIATE")
database.execute("UPDATE parts SET data = zeroblob(300000)")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("read", ["header", "snapshot", "problems", "sizes"])
def test_after_a_crash_inside_a_commit_everyone_sees_the_state_before(file, read):
    """The file on disk is half overwritten then; the journal restores it, for readers too."""
    before, bytes_before = content(file), file.path.read_bytes()
    subprocess.run([sys.executable, "-c", DIE_IN_COMMIT, str(file.path)], check=False)
    assert names(file.path.parent) == ["m.logcl", "m.logcl-journal"]
    assert file.path.read_bytes() != bytes_before
    result = getattr(file, read)()
    assert read != "problems" or result == []
    assert content(file) == before
    assert names(file.path.parent) == ["m.logcl"]


def test_an_unfinished_commit_without_its_journal_is_detected(file):
    """The file was moved without its journal."""
    subprocess.run([sys.executable, "-c", DIE_IN_COMMIT, str(file.path)], check=False)
    file.path.with_name("m.logcl-journal").unlink()
    assert file.problems()
    with pytest.raises(Damaged):
        file.snapshot()


def test_the_same_process_cannot_write_twice_at_once(file):
    with file.writing(), pytest.raises(Busy, match=f"process {os.getpid()}"), file.writing():
        pytest.fail("two writers")


@given(data=st.data())
@hypothesis_settings(max_examples=150)
def test_any_flipped_bit_is_detected_or_harmless(file, data):
    """Reading gives the same content or one of LogCL's errors, and verify agrees."""
    sound = file.path.read_bytes()
    before = content(file)
    place = data.draw(st.integers(0, len(sound) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(sound)
    damaged[place] ^= 1 << bit
    file.path.write_bytes(damaged)
    try:
        try:
            same = content(file) == before
        except LogCLError:
            same = False
            with contextlib.suppress(NotAMemory):
                assert file.problems()
        else:
            assert same
    finally:
        file.path.write_bytes(sound)


def test_nothing_is_written_to_a_file_of_damaged_structure(file):
    """A commit moves and frees pages: with a wrong map of them, what it overwrites is left to chance."""
    sound = file.path.read_bytes()
    header = file.header()
    refused = 0
    page = page_of(file.path)
    for place in range(page, page + 5 * (len(sound) // page - 2)):  # SQLite's map of pages
        damaged = bytearray(sound)
        damaged[place] ^= 1
        file.path.write_bytes(damaged)
        assert content(file)[0] == header.digest
        with pytest.raises(Damaged, match=r"`logcl verify --salvage`"):
            file.commit(header, {"n": 4}, {"level-2": b"two" * 5000}, ["level-1"])
        with pytest.raises(Damaged), file.writing():
            pass
        with pytest.raises(Damaged):
            file.write_classifier(b"model")
        assert file.path.read_bytes() == damaged
        refused += 1
    assert refused


def test_a_truncated_file_is_detected(file):
    sound = file.path.read_bytes()
    for size in range(0, len(sound), 311):
        file.path.write_bytes(sound[:size])
        with pytest.raises((Damaged, NotAMemory)):
            file.snapshot()


def test_a_part_that_was_swapped_removed_or_added_is_found(file):
    def edit(sql, *values):
        with sqlite3.connect(file.path) as database:
            database.execute(sql, values)
        database.close()

    sound = file.path.read_bytes()
    for sql, message in [
        ("DELETE FROM parts WHERE name = 'level-1'", "part level-1 is missing"),
        ("INSERT INTO parts VALUES ('level-8', zeroblob(32), x'00')", "part level-8 is not listed"),
        ("UPDATE parts SET name = 'level-6' WHERE name = 'level-0'", "part level-0 is missing"),
        (
            "UPDATE parts SET data = x'00' WHERE name = 'level-0'",
            "part level-0 does not match its own digest",
        ),
        ("UPDATE parts SET data = '{}' WHERE name = 'header'", "header is damaged"),
        ("DELETE FROM parts WHERE name = 'header'", "header is damaged or missing"),
    ]:
        edit(sql)
        assert any(message in problem for problem in file.problems()), sql
        if "level-8" not in sql:
            with pytest.raises(Damaged):
                file.snapshot()
        file.path.write_bytes(sound)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TRIGGER t AFTER INSERT ON parts BEGIN DELETE FROM parts; END",
        "CREATE VIEW v AS SELECT * FROM parts",
        "CREATE TABLE other (x)",
        "ALTER TABLE parts ADD COLUMN more",
        # An endless view: reading it would never return.
        "ALTER TABLE parts RENAME TO hidden; CREATE VIEW parts AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL "
        "SELECT x + 1 FROM c) SELECT 'header' AS name, zeroblob(32) AS digest, zeroblob(x) AS data FROM c",
        "PRAGMA journal_mode = WAL",
    ],
)
def test_a_file_with_other_tables_than_ours_is_refused(file, sql):
    database = sqlite3.connect(file.path)
    database.executescript(sql)
    database.close()
    for read in (file.header, file.snapshot, file.read_classifier, file.sizes):
        with pytest.raises(Damaged, match="not those of a memory"):
            read()
    assert "not those of a memory" in file.problems()[0]
    assert "all parts are intact" in file.problems()[-1]


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"memory": {}, "parts": {"level-1": ["no digest"]}}',
        b'{"memory": 3, "parts": {}}',
        b'{"memory": {"n": ' + b"9" * 10_000 + b'}, "parts": {}}',
        b"\xff\xfe",
        b"null",
    ],
)
def test_a_forged_header_is_refused(file, header):
    with sqlite3.connect(file.path) as database:
        digest = hashlib.sha256(header).digest()
        database.execute("UPDATE parts SET digest = ?, data = ? WHERE name = 'header'", (digest, header))
    database.close()
    with pytest.raises(Damaged, match="header cannot be read"):
        file.snapshot()
    assert file.problems()


def test_messages_of_sqlite_cannot_control_a_terminal(file):
    content = file.path.read_bytes()
    file.path.write_bytes(
        content.replace(b"digest BLOB NOT NULL CHECK", b"digest BLOB NOT NULL \x1b[2J\x03", 1)
    )
    with pytest.raises(Damaged, match="SQLite cannot read it") as refused:
        file.snapshot()
    assert str(refused.value).isprintable()
    assert all(problem.isprintable() for problem in file.problems())


def test_part_names_that_are_not_text_are_reported(file):
    with sqlite3.connect(file.path) as database:
        database.execute("INSERT INTO parts VALUES (7, zeroblob(32), x'00')")
    database.close()
    assert any("part 7" in problem for problem in file.problems())
    assert file.sizes()["7"] == 1
    assert file.nbytes() > 0


def test_the_header_is_readable_json(file):
    """Anyone can look inside with the sqlite3 shell."""
    database = sqlite3.connect(file.path)
    (text,) = database.execute("SELECT data FROM parts WHERE name = 'header'").fetchone()
    database.close()
    assert json.loads(text)["memory"] == {"n": 3}


def test_a_part_too_large_for_sqlite_is_distinguished_from_a_full_disk(tmp_path):
    """SQLite's own error, from a connection with a low limit."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        if not hasattr(database, "setlimit"):
            pytest.skip("needs Python 3.11")
        database.execute("CREATE TABLE parts (data BLOB)")
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)
        with pytest.raises(CannotWrite, match="larger than the 1 GB"), write_errors(tmp_path / "pets.logcl"):
            database.execute("INSERT INTO parts VALUES (?)", (bytes(2000),))


@pytest.mark.parametrize(("size", "page"), [(0, 512), (30_000, 512), (500_000, 1024), (20_000_000, 4096)])
def test_pages_are_small_in_a_small_file_and_large_in_a_large_one(tmp_path, size, page):
    """Whatever their size, all parts are found without SQLite's tables."""
    data = {"level-0": random.Random(size).randbytes(size)}
    file = MemoryFile(tmp_path / "m.logcl")
    file.create(FIELDS, data)
    assert page_of(file.path) == page
    assert file.path.stat().st_size <= 1.02 * size + 8 * page
    assert file.nbytes() == file.file_bytes() == file.path.stat().st_size
    content = file.path.read_bytes()
    file.path.write_bytes(bytes(100) + content[100:])
    intact = find_intact(file.path)
    assert intact is not None
    assert intact.parts == data
