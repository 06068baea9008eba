"""The SQLite side of a memory file: its schema, connections and transactions, and errors in our own terms."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from logcl.core.errors import Busy, CannotWrite, Damaged, LogCLError, NewerFormat, NotAMemory
from logcl.core.files import sync_folder
from logcl.core.text import printable
from logcl.core.writer_lock import open_database

FORMAT = 4
OLDEST = 2
"""The first format that is still read; a commit upgrades the file to the current one."""
APPLICATION_ID = 0x4C6F6743  # "LogC", where `file` and SQLite expect it
PAGES = (512, 1024, 2048, 4096)
"""Bytes that a page may have: a file keeps those that it was created with."""
_WAIT = 10.0  # seconds that a reader waits for a commit
_LONG_WAIT = 120.0  # seconds that a commit waits for readers: giving up would lose the training

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
    except OSError as error:  # no permission for a folder above, or a name that is too long
        raise NotAMemory(f"{path} cannot be reached ({error.strerror}); check the path") from error


def real(path: Path) -> Path:
    """The file that a path leads to through symbolic links; it need not exist."""
    found = path
    with suppress(OSError, RuntimeError):  # RuntimeError: a loop, up to Python 3.12
        found = path.resolve()
    if found.is_symlink():
        raise NotAMemory(f"{path} is a symbolic link that leads back to itself; name a file")
    return found


@contextmanager
def connect(path: Path, mode: str, wait: float = _WAIT) -> Iterator[sqlite3.Connection]:
    """A connection that does not trust what it reads and syncs what it writes."""
    name = f"{path.absolute().as_uri()}?mode={mode}"
    with (
        open_database(),
        closing(sqlite3.connect(name, uri=True, timeout=wait, isolation_level=None)) as database,
    ):
        # EXTRA also syncs the folder after the journal is deleted: a commit survives a power loss.
        for pragma in ("synchronous = EXTRA", "trusted_schema = OFF", "cell_size_check = ON"):
            database.execute(f"PRAGMA {pragma}")
        # Names in a damaged or forged file need not be UTF-8.
        database.text_factory = lambda text: text.decode(errors="replace")
        yield database


@contextmanager
def committing(path: Path, is_done: Callable[[], bool] = lambda: False) -> Iterator[sqlite3.Connection]:
    """A connection inside one write transaction with full sync; `is_done` as for `write_errors`."""
    with (
        write_errors(path, is_done),
        connect(path, "rw", _LONG_WAIT) as database,
        Transaction(database),
    ):
        _check_kind(path, database)  # another file may have taken its place since it was read
        check_structure(path, database)
        yield database


@contextmanager
def appearing(path: Path, is_done: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """Where to write a new file, which gets its name in one step after the block; `is_done` as above.

    Needs the writer lock, so that no other process creates a memory of this name meanwhile.
    """
    target = real(path)
    partial = target.with_name(f".{target.name}.new")
    leftovers = (partial, partial.with_name(partial.name + "-journal"))
    try:
        with write_errors(path, is_done):
            for left in leftovers:  # by a writer that was killed
                left.unlink(missing_ok=True)
            yield partial
            if exists(path):
                raise CannotWrite(f"{path} already exists; open it or choose another name")
            partial.replace(target)
            sync_folder(target.parent)
    finally:
        for left in leftovers:
            with suppress(OSError):
                left.unlink(missing_ok=True)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection inside one read transaction: everything is read as of one moment."""
    if not exists(path):
        raise NotAMemory(f"{path} does not exist; `logcl absorb` or Memory.open creates it")
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise NotAMemory(f"{path} is {kind}; name a memory file")
    try:
        # Not "ro": the first process to open the file after a crash rolls the commit back, even a reader. If
        # the file is read-only, SQLite falls back to reading.
        with connect(path, "rw") as database:
            _check_kind(path, database)
            database.execute("BEGIN")
            yield database
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        # UnicodeDecodeError: Python cannot decode a message of SQLite that quotes damaged text.
        if "locked" in str(error):
            raise Busy(f"{path} is locked by another program; try again") from error
        if "not a database" in str(error):
            raise NotAMemory(f"{path} is not a LogCL memory; nothing was changed in it") from error
        target = real(path)
        if target.with_name(target.name + "-journal").exists():
            raise CannotWrite(
                f"{path} has an interrupted commit that could not be rolled back ({printable(error)}); make "
                f"the file and its folder writable"
            ) from error
        raise Damaged(
            f"{path}: SQLite cannot read it ({printable(error)}); `logcl verify` says what is intact"
        ) from error


def check_structure(path: Path, database: sqlite3.Connection) -> None:
    """Refuse to write to a file whose pages are in disorder: what a commit overwrites is left to chance.

    Takes a second per gigabyte.
    """
    try:
        found = [str(row[0]) for row in database.execute("PRAGMA integrity_check(1)")]
    except sqlite3.OperationalError:
        raise  # locked, or the disk fails
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        found = [str(error)]
    if found != ["ok"]:
        problem = printable(" ".join(" ".join(found).split())[:200])
        raise Damaged(
            f"{path}: its structure is damaged ({problem}), and nothing was written to it; write what is "
            f"intact to a new file with `logcl verify --salvage`"
        )


def _check_kind(path: Path, database: sqlite3.Connection) -> None:
    found = version(database)
    if database.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise NotAMemory(f"{path} is not a LogCL memory; nothing was changed in it")
    if found > FORMAT:
        raise NewerFormat(f"{path} has format {found}, this LogCL reads up to format {FORMAT}; upgrade LogCL")
    if found < OLDEST:
        raise NotAMemory(f"{path} has format {found}, which no released LogCL wrote; create it again")
    # In a forged file `parts` may be an endless view or have triggers. White space may differ.
    entry = "coalesce(type || ' ' || name || ' ' || coalesce(sql, ''), '')"
    schema = database.execute(f"SELECT {entry} FROM sqlite_master ORDER BY type")
    journal = database.execute("PRAGMA journal_mode").fetchone()
    if [" ".join(text.split()) for (text,) in schema] != _EXPECTED or journal != ("delete",):
        raise Damaged(f"{path}: its tables are not those of a memory; `logcl verify` says what is intact")


@contextmanager
def write_errors(path: Path, is_done: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn errors of SQLite and the system into LogCL's; ignore them if `is_done()` after all.

    SQLite shrinks the file and syncs the folder after the commit: if only that fails, the commit stands.
    """
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as error:
        with suppress(LogCLError):
            if is_done():
                return
        if "locked" in str(error):
            raise Busy(f"{path} is locked by another program and was not changed; try again") from error
        if "too big" in str(error):
            raise CannotWrite(
                f"{path} could not be written and was not changed: a level is larger than the 1 GB that "
                f"SQLite stores in a row; use several memories, or codes of fewer bytes"
            ) from error
        # A full disk shows as "database or disk is full" or, from a failed write, "disk I/O error".
        raise CannotWrite(
            f"{path} could not be written ({printable(error)}) and was not changed; free disk space or "
            f"check the permissions, then try again"
        ) from error


class Transaction:
    """A write transaction, rolled back on any error.

    Not a generator: one that an interrupt leaves behind would be closed after the database, with a traceback.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database

    def __enter__(self) -> None:
        self.database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.database.execute("COMMIT")
        finally:
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")


def page_for(content: int) -> int:
    """Bytes of a page at which a file of so many bytes is smallest.

    A page costs about nine bytes, and four or five of a file's pages are mostly empty.
    """
    return min(PAGES, key=lambda page: 9 * content / page + 4.5 * page)


def pages_of(database: sqlite3.Connection) -> tuple[int, int]:
    """How many pages the file has, and the bytes of each."""
    (count,), (size,) = (
        database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
    )
    return int(count), int(size)


def version(database: sqlite3.Connection) -> int:
    """The format of the file."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


_EXPECTED = ["index sqlite_autoindex_parts_1", " ".join(f"table parts {SCHEMA}".split())]
