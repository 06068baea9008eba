"""The memory file: one SQLite database of named, digested parts. Bytes in, bytes out; no torch.

A memory is a `header` (JSON) that lists the digest of every part it consists of, and those parts. So the
header's digest stands for the whole content, a commit is one transaction that replaces the header and
the parts that changed, and a part that is missing, stray or altered cannot go unnoticed.
`docs/memory-file.md` specifies all of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logcl.errors import Busy, CannotWrite, Damaged, NewerFormat, NotAMemory
from logcl.writer_lock import writer_lock

FORMAT = 2
APPLICATION_ID = 0x4C6F6743  # "LogC", where `file` and SQLite expect it
CLASSIFIER = "classifier"
_HEADER = "header"
_PAGE = 1024  # bytes; small, because a memory of a few kilobytes must not be mostly empty pages
_WAIT = 10.0  # seconds that a reader waits for a commit to end

# A column's type binds nobody in SQLite: whatever a damaged or forged file holds is read as bytes.
_DIGEST, _DATA = "COALESCE(CAST(digest AS BLOB), x'')", "COALESCE(CAST(data AS BLOB), x'')"

_SCHEMA = """
CREATE TABLE parts (
    name   TEXT PRIMARY KEY NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    data   BLOB NOT NULL
)
"""


@dataclass(frozen=True)
class Header:
    """The content of a memory at one moment."""

    fields: Mapping[str, Any]
    """What the memory says of itself: settings, number of samples, classes."""
    parts: Mapping[str, str]
    """Name → digest (hexadecimal) of every part."""
    digest: str
    """Of the header itself, and through `parts` of everything."""


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

    def create(self, fields: Mapping[str, Any]) -> None:
        """Write an empty memory, whole or not at all."""
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
                    for pragma in (f"page_size = {_PAGE}", "auto_vacuum = FULL"):
                        database.execute(f"PRAGMA {pragma}")
                    with _transaction(database):
                        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                        database.execute(f"PRAGMA user_version = {FORMAT}")
                        database.execute(_SCHEMA)
                        _put(database, _HEADER, _header_bytes(fields, {}))
                partial.replace(self.path)
                _sync_folder(self.path.parent)
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
        parts |= {name: _digest(data).hex() for name, data in new.items()}
        with (
            self._write_errors(),
            closing(self._connect(self.path, "rw")) as database,
            _transaction(database),
        ):
            if self._header(database).digest != before.digest:
                raise CannotWrite(f"{self.path} was changed by someone else meanwhile; nothing was written")
            database.executemany("DELETE FROM parts WHERE name = ?", [(name,) for name in drop])
            for name, data in new.items():
                _put(database, name, data)
            _put(database, _HEADER, _header_bytes(fields, parts))
        return self.header()

    def read_classifier(self) -> bytes | None:
        """The global model, or None. It is derived from the memory, so the header does not list it."""
        with self._reading() as database:
            row = database.execute(
                f"SELECT {_DIGEST}, {_DATA} FROM parts WHERE name = ?", (CLASSIFIER,)
            ).fetchone()
        if row is None:
            return None
        if _digest(row[1]) != row[0]:
            raise Damaged(f"{self.path}: the global model is damaged; train it again with `logcl train`")
        return bytes(row[1])

    def write_classifier(self, data: bytes) -> None:
        """Keep the global model beside the memory; does not disturb a writer that is training."""
        self.check_writable()
        with (
            self._write_errors(),
            closing(self._connect(self.path, "rw")) as database,
            _transaction(database),
        ):
            _put(database, CLASSIFIER, data)

    def sizes(self) -> dict[str, int]:
        """Bytes of the whole file (`file`) and of each part."""
        with self._reading() as database:
            rows = database.execute("SELECT name, length(data) FROM parts ORDER BY name").fetchall()
        return {"file": self.path.stat().st_size, **dict(rows)}

    def problems(self) -> list[str]:
        """Everything that is wrong with the file as a file; empty if it is sound."""
        found: list[str] = []
        try:
            with self._reading() as database:
                for (message,) in database.execute("PRAGMA integrity_check"):
                    if message != "ok":
                        found.append(f"SQLite: {message}")
                header = self._header(database)
                rows = {}
                for name, digest, data in database.execute(f"SELECT name, {_DIGEST}, {_DATA} FROM parts"):
                    rows[name] = _digest(data)
                    if rows[name] != digest:
                        found.append(f"part {name} does not match its own digest")
        except Damaged as error:
            return [*found, str(error)]
        for name, expected in header.parts.items():
            if name not in rows:
                found.append(f"part {name} is missing")
            elif rows[name].hex() != expected:
                found.append(f"part {name} does not match the header")
        found += [
            f"part {name} is not listed" for name in rows if name not in {_HEADER, CLASSIFIER, *header.parts}
        ]
        return found

    def _connect(self, path: Path, mode: str) -> sqlite3.Connection:
        database = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_WAIT, isolation_level=None
        )
        # EXTRA also syncs the folder when the rollback journal goes: a commit survives a power loss.
        for pragma in ("synchronous = EXTRA", "trusted_schema = OFF", "cell_size_check = ON"):
            database.execute(f"PRAGMA {pragma}")
        return database

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
                    f"written; here that failed ({error})"
                ) from error
            raise Damaged(
                f"{self.path}: SQLite cannot read it ({error}); `logcl verify` says what is intact"
            ) from error

    def _check_kind(self, database: sqlite3.Connection) -> None:
        (kind,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if kind != APPLICATION_ID:
            raise NotAMemory(f"{self.path} is not a LogCL memory; nothing was changed in it")
        if version > FORMAT:
            raise NewerFormat(
                f"{self.path} has format {version}, this LogCL reads up to format {FORMAT}; upgrade LogCL"
            )
        if version < FORMAT:
            raise NotAMemory(
                f"{self.path} has format {version}, which no released LogCL wrote; create it again"
            )

    def _header(self, database: sqlite3.Connection) -> Header:
        row = database.execute(f"SELECT {_DIGEST}, {_DATA} FROM parts WHERE name = ?", (_HEADER,)).fetchone()
        if row is None or _digest(row[1]) != row[0]:
            raise Damaged(
                f"{self.path}: the header is damaged or missing; `logcl verify` says what is intact"
            )
        try:
            content = json.loads(row[1])
            return Header(dict(content["memory"]), dict(content["parts"]), row[0].hex())
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{self.path}: the header cannot be read ({error})") from error

    def _part(self, database: sqlite3.Connection, name: str, digest: str) -> bytes:
        row = database.execute(f"SELECT {_DATA} FROM parts WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise Damaged(f"{self.path}: part {name} is missing; `logcl verify` says what is intact")
        if _digest(row[0]).hex() != digest:
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
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                raise Busy(f"{self.path} is locked by another program and is as it was; try again") from error
            # A full disk shows as "database or disk is full" or, from a failed write, "disk I/O error".
            raise CannotWrite(
                f"{self.path} could not be written ({error}) and is as it was; free space on the disk or "
                f"check the permissions, then try again"
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


def _put(database: sqlite3.Connection, name: str, data: bytes) -> None:
    database.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", (name, _digest(data), data))


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _header_bytes(fields: Mapping[str, Any], parts: Mapping[str, str]) -> bytes:
    content = {"memory": fields, "parts": dict(parts)}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def pages(count: int) -> int:
    """Bytes of the file that a part of `count` bytes occupies: whole pages, each with a link to the next."""
    return -(-count // (_PAGE - 4)) * _PAGE


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
