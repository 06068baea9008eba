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

from logcl.core.errors import CannotWrite, Damaged, LogCLError, NewerFormat, NotAMemory
from logcl.core.files import sync_folder
from logcl.core.text import printable
from logcl.core.writer_lock import writer_lock
from logcl.memory.file.header import COPY, HEADER, Header, digest_of, inflate, parse, to_bytes
from logcl.memory.file.intact import CLASSIFIER, find_remains
from logcl.memory.file.sqlite import (
    APPLICATION_ID,
    FORMAT,
    PAGE,
    SCHEMA,
    committing,
    connect,
    exists,
    reading,
    transaction,
    version,
    write_errors,
)

_STAGED = "staged-"

# A column's type binds nobody in SQLite: whatever a damaged or forged file holds is read as bytes.
_NAME = "COALESCE(CAST(name AS TEXT), '')"
_DIGEST, _DATA = "COALESCE(CAST(digest AS BLOB), x'')", "COALESCE(CAST(data AS BLOB), x'')"


class MemoryFile:
    """Access to one memory file. Opens the database for each operation, so it may cross a fork."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def exists(self) -> bool:
        """Whether anything is at the path."""
        return exists(self.path)

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
                with write_errors(self.path), closing(connect(partial, "rwc")) as database:
                    for pragma in (f"page_size = {PAGE}", "auto_vacuum = FULL"):
                        database.execute(f"PRAGMA {pragma}")
                    with transaction(database):
                        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                        database.execute(SCHEMA)
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
        with reading(self.path) as database:
            return self._header(database)

    def snapshot(self, known: Collection[str] = ()) -> tuple[Header, dict[str, bytes]]:
        """The header and its parts, of one moment and checked; parts with a `known` digest are left out."""
        with reading(self.path) as database:
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
        with (
            self._done_all_the_same(lambda: self.header().digest == after),
            committing(self.path) as database,
        ):
            if self._header(database).digest != before.digest:
                raise CannotWrite(f"{self.path} was changed by someone else meanwhile; nothing was written")
            database.executemany("DELETE FROM parts WHERE name = ?", [(name,) for name in drop])
            _drop_staged(database)
            _write(database, fields, parts, new)
        return self.header()

    def stage(self, name: str, data: bytes) -> None:
        """Keep something that a later commit may need, outside the content: a crash does not lose it."""
        with committing(self.path) as database:
            _put(database, _STAGED + name, data)

    def staged(self) -> dict[str, bytes]:
        """What is staged, by name; whatever is damaged is left out."""
        with reading(self.path) as database:
            rows = database.execute(
                f"SELECT {_NAME}, {_DIGEST}, {_DATA} FROM parts WHERE substr(name, 1, ?) = ?",
                (len(_STAGED), _STAGED),
            ).fetchall()
        return {name.removeprefix(_STAGED): data for name, digest, data in rows if digest_of(data) == digest}

    def drop_staged(self) -> None:
        """Forget what is staged; a commit does so too."""
        with committing(self.path) as database:
            _drop_staged(database)

    def read_classifier(self) -> bytes | None:
        """The global model, or None. It is derived from the memory, so the header does not list it."""
        with reading(self.path) as database:
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
        with (
            self._done_all_the_same(lambda: self.read_classifier() == data),
            committing(self.path) as database,
        ):
            _put(database, CLASSIFIER, data)

    def sizes(self) -> dict[str, int]:
        """Bytes of each part."""
        with reading(self.path) as database:
            return dict(
                database.execute(f"SELECT {_NAME}, length({_DATA}) FROM parts ORDER BY name").fetchall()
            )

    def nbytes(self) -> int:
        """Bytes of the file, less those of the global model and of staged work: both can be made again."""
        apart = [
            size for name, size in self.sizes().items() if name == CLASSIFIER or name.startswith(_STAGED)
        ]
        size = self.path.stat().st_size // PAGE
        content = size - _map_pages(size) - sum(map(_pages, apart))
        pages = content
        while pages - _map_pages(pages) < content:
            pages += 1
        return pages * PAGE

    def problems(self) -> list[str]:
        """Everything that is wrong with the file as a file; empty if it is sound."""
        found: list[str] = []
        try:
            with reading(self.path) as database:
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
        if COPY not in rows and version(database) > 2:
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


def _pages(count: int) -> int:
    """Pages that a part of `count` bytes occupies, each with a link to the next."""
    return -(-count // (PAGE - 4))


def _map_pages(pages: int) -> int:
    """How many of a file's pages map others to their parents: the second, and one after every PAGE / 5."""
    return -(-(pages - 1) // (PAGE // 5 + 1))
