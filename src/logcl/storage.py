"""The memory file: one SQLite database of named, digested parts. Bytes in, bytes out; no torch.

A memory is a `header` (JSON) that lists the digest of every part it consists of, and those parts. So the
header's digest stands for the whole content, a commit is one transaction that replaces the header and
the parts that changed, and a part that is missing, stray or altered cannot go unnoticed. A deflated copy
of the header lies elsewhere in the file, so that no single damaged byte loses more than one part.
`docs/memory-file.md` specifies all of it.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from logcl.errors import Busy, CannotWrite, Damaged, LogCLError, NewerFormat, NotAMemory
from logcl.files import sync_folder
from logcl.header import COPY, HEADER, Header, digest_of, inflate, parse, to_bytes
from logcl.remains import CLASSIFIER, find_remains
from logcl.words import printable
from logcl.writer_lock import writer_lock

FORMAT = 3
OLDEST = 2
"""The first format that is still read; a commit makes it the present one."""
APPLICATION_ID = 0x4C6F6743  # "LogC", where `file` and SQLite expect it
_STAGED = "staged-"
PAGE = 1024  # bytes; small, because a memory of a few kilobytes must not be mostly empty pages
_WAIT = 10.0  # seconds that a reader waits for a commit to end
_LONG_WAIT = 120.0  # seconds that a commit waits for readers: behind it lies all the training

# A column's type binds nobody in SQLite: whatever a damaged or forged file holds is read as bytes.
_NAME = "COALESCE(CAST(name AS TEXT), '')"
_DIGEST, _DATA = "COALESCE(CAST(digest AS BLOB), x'')", "COALESCE(CAST(data AS BLOB), x'')"

_SCHEMA = """
CREATE TABLE parts (
    name   TEXT PRIMARY KEY NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    data   BLOB NOT NULL
)
"""


class MemoryFile:
    """Access to one memory file. Opens the database for each operation, so it may cross a fork."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def exists(self) -> bool:
        """Whether anything is at the path."""
        try:
            return self.path.exists()
        except OSError as error:  # no permission on the way, or a name that is too long
            raise NotAMemory(f"{self.path} cannot be reached ({error.strerror}); check the path") from error

    def create(self, fields: Mapping[str, Any], parts: Mapping[str, bytes] | None = None) -> None:
        """Write a new memory, whole or not at all."""
        parts = parts or {}
        self.check_writable()
        partial = self.path.with_name(f".{self.path.name}.new")
        leftovers = (partial, partial.with_name(partial.name + "-journal"))
        with writer_lock(self.path):
            if self.exists():
                raise CannotWrite(f"{self.path} already exists; open it, or choose another name")
            try:
                for left in leftovers:  # of a writer that was killed here: the lock is ours now
                    left.unlink(missing_ok=True)
                with self._write_errors(), closing(self._connect(partial, "rwc")) as database:
                    for pragma in (f"page_size = {PAGE}", "auto_vacuum = FULL"):
                        database.execute(f"PRAGMA {pragma}")
                    with _transaction(database):
                        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                        database.execute(_SCHEMA)
                        _write(database, fields, {name: _hex(data) for name, data in parts.items()}, parts)
                partial.replace(self.path)
                sync_folder(self.path.parent)
            finally:
                for left in leftovers:
                    left.unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer: from before the first sample is read until after the commit."""
        self.check_writable()
        with writer_lock(self.path):
            yield

    def header(self) -> Header:
        """The current header, its digest checked."""
        with self._reading() as database:
            return self._header(database)

    def snapshot(self, known: Collection[str] = ()) -> tuple[Header, dict[str, bytes]]:
        """The header and its parts, of one moment and checked; parts with a `known` digest are left out."""
        with self._reading() as database:
            header = self._header(database)
            parts = {}
            for name, digest in header.parts.items():
                if digest not in known:
                    parts[name] = self._part(database, name, digest)
        return header, parts

    def commit(
        self, before: Header, fields: Mapping[str, Any], new: Mapping[str, bytes], drop: Collection[str]
    ) -> Header:
        """Replace the header and some parts in one transaction with full sync; all of it or nothing."""
        parts = {name: digest for name, digest in before.parts.items() if name not in drop}
        parts |= {name: _hex(data) for name, data in new.items()}
        after = _hex(to_bytes(fields, parts))
        with self._done_all_the_same(lambda: self.header().digest == after), self._committing() as database:
            if self._header(database).digest != before.digest:
                raise CannotWrite(f"{self.path} was changed by someone else meanwhile; nothing was written")
            database.executemany("DELETE FROM parts WHERE name = ?", [(name,) for name in drop])
            _drop_staged(database)
            _write(database, fields, parts, new)
        return self.header()

    def stage(self, name: str, data: bytes) -> None:
        """Keep something that a later commit may need, outside the content: a crash does not lose it."""
        with self._committing() as database:
            _put(database, _STAGED + name, data)

    def staged(self) -> dict[str, bytes]:
        """What is staged, by name; whatever is damaged is left out."""
        with self._reading() as database:
            rows = database.execute(
                f"SELECT {_NAME}, {_DIGEST}, {_DATA} FROM parts WHERE substr(name, 1, ?) = ?",
                (len(_STAGED), _STAGED),
            ).fetchall()
        return {name.removeprefix(_STAGED): data for name, digest, data in rows if digest_of(data) == digest}

    def drop_staged(self) -> None:
        """Forget what is staged; a commit does so too."""
        with self._committing() as database:
            _drop_staged(database)

    def read_classifier(self) -> bytes | None:
        """The global model, or None. It is derived from the memory, so the header does not list it."""
        with self._reading() as database:
            row = database.execute(
                f"SELECT {_DIGEST}, {_DATA} FROM parts WHERE name = ?", (CLASSIFIER,)
            ).fetchone()
        if row is None:
            return None
        if digest_of(row[1]) != row[0]:
            raise Damaged(f"{self.path}: the global model is damaged; train it again with `logcl train`")
        return bytes(row[1])

    def write_classifier(self, data: bytes) -> None:
        """Keep the global model beside the memory; does not disturb a writer that is training."""
        self.check_writable()
        with self._done_all_the_same(lambda: self.read_classifier() == data), self._committing() as database:
            _put(database, CLASSIFIER, data)

    def sizes(self) -> dict[str, int]:
        """Bytes of each part."""
        with self._reading() as database:
            return dict(
                database.execute(f"SELECT {_NAME}, length({_DATA}) FROM parts ORDER BY name").fetchall()
            )

    def nbytes(self) -> int:
        """Bytes of the file, less those of the global model and of staged work: both can be made again."""
        apart = [
            size for name, size in self.sizes().items() if name == CLASSIFIER or name.startswith(_STAGED)
        ]
        return self.path.stat().st_size - sum(map(_pages, apart))

    def problems(self) -> list[str]:
        """Everything that is wrong with the file as a file; empty if it is sound."""
        found: list[str] = []
        try:
            with self._reading() as database:
                for (message,) in database.execute("PRAGMA integrity_check(9)"):
                    if message != "ok":
                        found.append(f"SQLite: {printable(message)}")
                found += self._parts_problems(database)
        except NewerFormat:
            raise
        except (Damaged, NotAMemory) as error:
            remains = find_remains(self.path, PAGE)
            if remains is None and isinstance(error, NotAMemory):
                raise
            found.append(str(error))
            if remains is None:
                return [*found, "neither the header nor its copy is intact"]
            found += [f"part {name} is lost" for name in remains.lost]
            if not remains.lost:
                found.append("all parts are intact: `logcl verify --salvage` writes them to a new file")
        return found

    def _parts_problems(self, database: sqlite3.Connection) -> list[str]:
        """Parts that do not match their digests, the header or each other."""
        header = self._header(database)
        found, rows = [], {}
        for name, digest, data in database.execute(f"SELECT {_NAME}, {_DIGEST}, {_DATA} FROM parts"):
            rows[name] = _hex(data)
            if rows[name] != digest.hex():
                found.append(f"part {printable(name)} does not match its own digest")
            if name == COPY and (copy := inflate(data)) and _hex(copy) != header.digest:
                found.append("the copy of the header is another one")
        if COPY not in rows and _version(database) > 2:
            found.append("the copy of the header is missing")
        for name, expected in header.parts.items():
            if name not in rows:
                found.append(f"part {name} is missing")
            elif rows[name] != expected:
                found.append(f"part {name} does not match the header")
        listed = {HEADER, COPY, CLASSIFIER, *header.parts}
        found += [
            f"part {printable(name)} is not listed"
            for name in rows
            if name not in listed and not name.startswith(_STAGED)
        ]
        return found

    def _connect(self, path: Path, mode: str, wait: float = _WAIT) -> sqlite3.Connection:
        database = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=wait, isolation_level=None
        )
        # EXTRA also syncs the folder when the rollback journal goes: a commit survives a power loss.
        for pragma in ("synchronous = EXTRA", "trusted_schema = OFF", "cell_size_check = ON"):
            database.execute(f"PRAGMA {pragma}")
        return database

    @contextmanager
    def _committing(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one write transaction with full sync: all of it happens, or nothing."""
        with (
            self._write_errors(),
            closing(self._connect(self.path, "rw", _LONG_WAIT)) as database,
            _transaction(database),
        ):
            yield database

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction: everything read belongs to one moment."""
        if not self.exists():
            raise NotAMemory(f"{self.path} does not exist; `logcl absorb` or Memory.open creates it")
        if not self.path.is_file():
            raise NotAMemory(f"{self.path} is a folder, not a memory file")
        try:
            # Not "ro": whoever comes first after a death inside a commit rolls it back, readers too. SQLite
            # itself goes on read-only where the file may not be written.
            with closing(self._connect(self.path, "rw")) as database:
                self._check_kind(database)
                database.execute("BEGIN")
                yield database
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            # The latter is Python's: it cannot read a message of SQLite that quotes damaged text.
            if "locked" in str(error):
                raise Busy(f"{self.path} is locked by another program; try again") from error
            if "not a database" in str(error):
                raise NotAMemory(f"{self.path} is not a LogCL memory; nothing was changed in it") from error
            if self.path.with_name(self.path.name + "-journal").exists():
                raise CannotWrite(
                    f"{self.path} was left in the middle of a commit, which is undone where the file may be "
                    f"written; here that failed ({printable(error)})"
                ) from error
            raise Damaged(
                f"{self.path}: SQLite cannot read it ({printable(error)}); `logcl verify` says what is intact"
            ) from error

    def _check_kind(self, database: sqlite3.Connection) -> None:
        (kind,) = database.execute("PRAGMA application_id").fetchone()
        version = _version(database)
        if kind != APPLICATION_ID:
            raise NotAMemory(f"{self.path} is not a LogCL memory; nothing was changed in it")
        if version > FORMAT:
            raise NewerFormat(
                f"{self.path} has format {version}, this LogCL reads up to format {FORMAT}; upgrade LogCL"
            )
        if version < OLDEST:
            raise NotAMemory(
                f"{self.path} has format {version}, which no released LogCL wrote; create it again"
            )
        # In a stranger's file `parts` may be a view that never ends, or have triggers.
        schema = database.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type").fetchall()
        (journal,) = database.execute("PRAGMA journal_mode").fetchone()
        if [_words(row) for row in schema] != _EXPECTED or journal != "delete":
            raise Damaged(
                f"{self.path}: its tables are not those of a memory; `logcl verify` says what is intact"
            )

    def _header(self, database: sqlite3.Connection) -> Header:
        row = database.execute(f"SELECT {_DIGEST}, {_DATA} FROM parts WHERE name = ?", (HEADER,)).fetchone()
        if row is None or digest_of(row[1]) != row[0]:
            raise Damaged(
                f"{self.path}: the header is damaged or missing; `logcl verify` says what is intact"
            )
        header = parse(row[1])
        if header is None:
            raise Damaged(f"{self.path}: the header cannot be read; `logcl verify` says what is intact")
        return header

    def _part(self, database: sqlite3.Connection, name: str, digest: str) -> bytes:
        row = database.execute(f"SELECT {_DATA} FROM parts WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise Damaged(f"{self.path}: part {name} is missing; `logcl verify` says what is intact")
        if _hex(row[0]) != digest:
            raise Damaged(f"{self.path}: part {name} is damaged; `logcl verify` says what is intact")
        return bytes(row[0])

    def check_writable(self) -> None:
        """Raise `CannotWrite` if it is clear already that a commit would fail."""
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise CannotWrite(f"the folder {folder} does not exist; create it first")
        if not os.access(folder, os.W_OK) or (self.exists() and not os.access(self.path, os.W_OK)):
            raise CannotWrite(f"{self.path} or its folder is read-only; nothing was changed")

    @contextmanager
    def _done_all_the_same(self, is_done: Callable[[], bool]) -> Iterator[None]:
        """SQLite gives room back to the disk after a commit; an error there must not be taken for another."""
        try:
            yield
        except CannotWrite:
            with suppress(LogCLError):
                if is_done():
                    return
            raise

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                raise Busy(f"{self.path} is locked by another program and is as it was; try again") from error
            # A full disk shows as "database or disk is full" or, from a failed write, "disk I/O error".
            raise CannotWrite(
                f"{self.path} could not be written ({printable(error)}) and is as it was; free space on the "
                f"disk or check the permissions, then try again"
            ) from error


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _hex(data: bytes) -> str:
    return digest_of(data).hex()


def _put(database: sqlite3.Connection, name: str, data: bytes) -> None:
    database.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", (name, digest_of(data), data))


def _write(
    database: sqlite3.Connection,
    fields: Mapping[str, Any],
    parts: Mapping[str, str],
    new: Mapping[str, bytes],
) -> None:
    """New parts and the header with its copy, in the present format."""
    header = to_bytes(fields, parts)
    _put(database, COPY, zlib.compress(header, 9))
    for name, data in new.items():
        _put(database, name, data)
    _put(database, HEADER, header)
    database.execute(f"PRAGMA user_version = {FORMAT}")


def _drop_staged(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM parts WHERE substr(name, 1, ?) = ?", (len(_STAGED), _STAGED))


def _version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def _words(row: tuple[str | None, ...]) -> tuple[str, ...]:
    """A row of the schema, whatever the white space in it."""
    return tuple(" ".join((text or "").split()) for text in row)


_EXPECTED = [_words(("index", "sqlite_autoindex_parts_1", "")), _words(("table", "parts", _SCHEMA))]


def _pages(count: int) -> int:
    """Bytes of the file that a part of `count` bytes occupies: whole pages, each with a link to the next."""
    return -(-count // (PAGE - 4)) * PAGE
