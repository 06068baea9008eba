"""The SQLite side of a memory file: which database it is, how it is opened, what its errors mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from logcl.core.errors import Busy, CannotWrite, Damaged, NewerFormat, NotAMemory
from logcl.core.text import printable

FORMAT = 4
OLDEST = 2
"""The first format that is still read; a commit makes it the present one."""
APPLICATION_ID = 0x4C6F6743  # "LogC", where `file` and SQLite expect it
PAGE = 1024  # bytes; small, because a memory of a few kilobytes must not be mostly empty pages
_WAIT = 10.0  # seconds that a reader waits for a commit to end
_LONG_WAIT = 120.0  # seconds that a commit waits for readers: behind it lies all the training

SCHEMA = """
CREATE TABLE parts (
    name   TEXT PRIMARY KEY NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    data   BLOB NOT NULL
)
"""


def exists(path: Path) -> bool:
    """Whether anything is at the path."""
    try:
        return path.exists()
    except OSError as error:  # no permission on the way, or a name that is too long
        raise NotAMemory(f"{path} cannot be reached ({error.strerror}); check the path") from error


def connect(path: Path, mode: str, wait: float = _WAIT) -> sqlite3.Connection:
    """A connection that distrusts what it reads and syncs what it writes."""
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=wait, isolation_level=None
    )
    # EXTRA also syncs the folder when the rollback journal goes: a commit survives a power loss.
    for pragma in ("synchronous = EXTRA", "trusted_schema = OFF", "cell_size_check = ON"):
        database.execute(f"PRAGMA {pragma}")
    return database


@contextmanager
def committing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection inside one write transaction with full sync: all of it happens, or nothing."""
    with (
        write_errors(path),
        closing(connect(path, "rw", _LONG_WAIT)) as database,
        transaction(database),
    ):
        yield database


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection inside one read transaction: everything read belongs to one moment."""
    if not exists(path):
        raise NotAMemory(f"{path} does not exist; `logcl absorb` or Memory.open creates it")
    if not path.is_file():
        raise NotAMemory(f"{path} is a folder, not a memory file")
    try:
        # Not "ro": whoever comes first after a death inside a commit rolls it back, readers too. SQLite
        # itself goes on read-only where the file may not be written.
        with closing(connect(path, "rw")) as database:
            _check_kind(path, database)
            database.execute("BEGIN")
            yield database
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        # The latter is Python's: it cannot read a message of SQLite that quotes damaged text.
        if "locked" in str(error):
            raise Busy(f"{path} is locked by another program; try again") from error
        if "not a database" in str(error):
            raise NotAMemory(f"{path} is not a LogCL memory; nothing was changed in it") from error
        if path.with_name(path.name + "-journal").exists():
            raise CannotWrite(
                f"{path} was left in the middle of a commit, which is undone where the file may be "
                f"written; here that failed ({printable(error)})"
            ) from error
        raise Damaged(
            f"{path}: SQLite cannot read it ({printable(error)}); `logcl verify` says what is intact"
        ) from error


def _check_kind(path: Path, database: sqlite3.Connection) -> None:
    (kind,) = database.execute("PRAGMA application_id").fetchone()
    found = version(database)
    if kind != APPLICATION_ID:
        raise NotAMemory(f"{path} is not a LogCL memory; nothing was changed in it")
    if found > FORMAT:
        raise NewerFormat(f"{path} has format {found}, this LogCL reads up to format {FORMAT}; upgrade LogCL")
    if found < OLDEST:
        raise NotAMemory(f"{path} has format {found}, which no released LogCL wrote; create it again")
    # In a stranger's file `parts` may be a view that never ends, or have triggers.
    schema = database.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type").fetchall()
    (journal,) = database.execute("PRAGMA journal_mode").fetchone()
    if [_words(row) for row in schema] != _EXPECTED or journal != "delete":
        raise Damaged(f"{path}: its tables are not those of a memory; `logcl verify` says what is intact")


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """What SQLite refuses to write becomes an error of ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise Busy(f"{path} is locked by another program and is as it was; try again") from error
        if "too big" in str(error):
            raise CannotWrite(
                f"{path} could not be written and is as it was: a level is larger than the 1 GB that SQLite "
                f"keeps in a row; use several memories, or codes of fewer bytes"
            ) from error
        # A full disk shows as "database or disk is full" or, from a failed write, "disk I/O error".
        raise CannotWrite(
            f"{path} could not be written ({printable(error)}) and is as it was; free space on the "
            f"disk or check the permissions, then try again"
        ) from error


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All that is done inside, or nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def version(database: sqlite3.Connection) -> int:
    """The format of the file."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def _words(row: tuple[str | None, ...]) -> tuple[str, ...]:
    """A row of the schema, whatever the white space in it."""
    return tuple(" ".join((text or "").split()) for text in row)


_EXPECTED = [_words(("index", "sqlite_autoindex_parts_1", "")), _words(("table", "parts", SCHEMA))]
