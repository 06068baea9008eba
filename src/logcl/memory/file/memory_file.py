"""The memory file: one SQLite database of named parts, each with a digest. Bytes in, bytes out; no torch.

A memory consists of a `header` (JSON), which lists the digest of every part, and of those parts. The header's
digest therefore identifies the whole content: a commit is one transaction that replaces the header and the
parts that changed, and a missing, stray or altered part is always detected. A deflated copy of the header is
stored elsewhere in the file, so a single damaged byte loses at most one part. `docs/memory-file.md` has the
specification.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from logcl.core.errors import CannotWrite, Damaged, NewerFormat, NotAMemory
from logcl.core.files import sync_folder
from logcl.core.text import printable
from logcl.core.writer_lock import writer_lock
from logcl.memory.file import header as headers
from logcl.memory.file import sqlite
from logcl.memory.file.carving import find_remains
from logcl.memory.file.header import CLASSIFIER, COPY, HEADER, LEDGER, Header, digest_of, inflate, to_bytes
from logcl.memory.file.sqlite import PAGE, committing, reading

_STAGED = "staged-"
_IS_STAGED = f"substr(name, 1, {len(_STAGED)}) = '{_STAGED}'"

# SQLite does not enforce column types: whatever a damaged or forged file holds is read as text and bytes.
_NAME = "COALESCE(CAST(name AS TEXT), '')"
_DIGEST, _DATA = "COALESCE(CAST(digest AS BLOB), x'')", "COALESCE(CAST(data AS BLOB), x'')"


class MemoryFile:
    """Access to one memory file. Opens the database for each operation, so it survives a fork."""

    def __init__(self, path: str | os.PathLike[str], new: Mapping[str, Any] | None = None) -> None:
        """`new`: fields of a memory that does not exist yet; its first transaction creates the file."""
        self.path = Path(path).absolute()
        self._new = new
        self._database: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Whether anything is at the path."""
        return sqlite.exists(self.path)

    def create(
        self,
        fields: Mapping[str, Any],
        parts: Mapping[str, bytes] | None = None,
        classifier: bytes | None = None,
        check: Callable[[Path], None] | None = None,
    ) -> None:
        """Write a new memory, completely or not at all; `check` may refuse it before it has its name."""
        with self.writing():
            unlisted = {} if classifier is None else {CLASSIFIER: classifier}
            self._create(fields, parts or {}, unlisted, check)

    def _create(
        self,
        fields: Mapping[str, Any],
        parts: Mapping[str, bytes],
        unlisted: Mapping[str, bytes],
        check: Callable[[Path], None] | None = None,
    ) -> None:
        """Needs the writer lock, so that no other process creates a memory of this name meanwhile."""
        real = sqlite.real(self.path)
        partial = real.with_name(f".{real.name}.new")
        leftovers = (partial, partial.with_name(partial.name + "-journal"))
        made = headers.make(fields, _digests(parts))
        try:
            with sqlite.write_errors(self.path, lambda: MemoryFile(self.path).header() == made):
                for left in leftovers:  # by a writer that was killed; we hold the lock now
                    left.unlink(missing_ok=True)
                with sqlite.connect(partial, "rwc") as database:
                    database.execute(f"PRAGMA page_size = {PAGE}")
                    database.execute("PRAGMA auto_vacuum = FULL")
                    with sqlite.Transaction(database):
                        database.execute(f"PRAGMA application_id = {sqlite.APPLICATION_ID}")
                        database.execute(sqlite.SCHEMA)
                        _write(database, fields, made.parts, {**parts, **unlisted})
                if check is not None:
                    check(partial)
                if self.exists():
                    raise CannotWrite(f"{self.path} already exists; open it or choose another name")
                partial.replace(real)
                self._new = None
                sync_folder(real.parent)
        finally:
            for left in leftovers:
                with suppress(OSError):
                    left.unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer lock: from before the first sample is read until after the commit."""
        self.check_writable()
        with writer_lock(self.path):
            if self._new is not None and self.exists():
                self._adopt(self._new)
            if self.exists():
                with self._reading() as database:
                    sqlite.check_structure(self.path, database)  # now, and not after the training
            yield

    def _adopt(self, new: Mapping[str, Any]) -> None:
        """Continue with the memory that another process has created meanwhile, if it is as ours would be."""
        found = self.header().fields
        if any(found.get(name) != new[name] for name in new if name not in ("n", "last", "classes")):
            raise CannotWrite(
                f"{self.path} was created by another process with other settings; nothing was written to it"
            )
        self._new = None

    @contextmanager
    def at_one_moment(self) -> Iterator[MemoryFile]:
        """The file to read from in one transaction: nothing changes between the calls."""
        with self._reading() as database:
            fixed = MemoryFile(self.path, self._new)
            fixed._database = database
            yield fixed

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if self._database is not None:
            yield self._database
            return
        with reading(self.path) as database:
            yield database

    def _unborn(self) -> Mapping[str, Any] | None:
        """The fields of a memory that no transaction has created yet."""
        return None if self._new is None or self.exists() else self._new

    def header(self) -> Header:
        """The current header, verified."""
        if (fields := self._unborn()) is not None:
            return headers.make(fields, {})
        with self._reading() as database:
            return self._header(database)

    def snapshot(self, known: Collection[str] = ()) -> tuple[Header, dict[str, bytes]]:
        """Header and parts as of one moment, verified; parts with a `known` digest are omitted."""
        if self._unborn() is not None:
            return self.header(), {}
        with self._reading() as database:
            header = self._header(database)
            # In a forged file several parts may lie on the same pages.
            (total,) = database.execute("SELECT total(length(data)) FROM parts").fetchone()
            if total > self.path.stat().st_size:
                raise self._damaged("its parts are larger than the file")
            missing = {name: digest for name, digest in header.parts.items() if digest not in known}
            return header, self._parts(database, missing)

    def commit(
        self, before: Header, fields: Mapping[str, Any], new: Mapping[str, bytes], drop: Collection[str]
    ) -> Header:
        """Replace the header and some parts in one transaction with full sync; nothing fails after it."""
        parts = {name: digest for name, digest in before.parts.items() if name not in drop} | _digests(new)
        after = headers.make(fields, parts)
        if self._unborn() is not None:
            self._create(fields, new, {})
            return after
        with self._changing(before, lambda: self.header() == after) as database:
            database.executemany("DELETE FROM parts WHERE name = ?", [(name,) for name in drop])
            database.execute(f"DELETE FROM parts WHERE {_IS_STAGED}")
            _write(database, fields, parts, new)
        return after

    def stage(self, before: Header, name: str, data: bytes) -> None:
        """Store unfinished work until the next commit; it survives a crash and is not part of the content."""
        if (fields := self._unborn()) is not None:
            self._create(fields, {}, {_STAGED + name: data})
            return
        with self._changing(before) as database:
            _put(database, _STAGED + name, data)

    @contextmanager
    def _changing(
        self, before: Header, is_done: Callable[[], bool] = lambda: False
    ) -> Iterator[sqlite3.Connection]:
        """A write transaction on the memory that was read, which may have been replaced meanwhile."""
        with committing(self.path, is_done) as database:
            if self._header(database).digest != before.digest:
                raise CannotWrite(f"{self.path} was changed by another program; nothing was written")
            yield database

    def staged(self) -> dict[str, bytes]:
        """Staged work by name, without what is damaged."""
        if self._unborn() is not None:
            return {}
        query = f"SELECT {_NAME}, {_DIGEST}, {_DATA} FROM parts WHERE {_IS_STAGED}"
        with self._reading() as database:
            rows = database.execute(query).fetchall()
        return {name.removeprefix(_STAGED): data for name, digest, data in rows if digest_of(data) == digest}

    def drop_staged(self, before: Header) -> None:
        """Delete staged work, as a commit does too."""
        with self._changing(before) as database:
            database.execute(f"DELETE FROM parts WHERE {_IS_STAGED}")

    def unstage(self, name: str) -> None:
        """Delete one piece of staged work."""
        with committing(self.path) as database:
            _delete_staged(database, name)

    def read_classifier(self) -> bytes | None:
        """The global model, or None. It is derived from the memory, so the header does not list it."""
        with self._reading() as database:
            stored = _stored(database, CLASSIFIER)
        if stored is not None and digest_of(stored[1]) != stored[0]:
            raise Damaged(f"{self.path}: the global model is damaged; train it again with `logcl train`")
        return stored and stored[1]

    def write_classifier(
        self, data: bytes, accepts: Callable[[Header, Mapping[str, bytes]], bool] | None = None
    ) -> None:
        """Store the global model in the memory's file, even while another process is training.

        accepts: whether it belongs to the memory with this header and ledger, which is asked inside the
        transaction.
        """
        self.check_writable()
        with committing(self.path, lambda: self.read_classifier() == data) as database:
            if accepts is not None:
                header = self._header(database)
                ledger = {name: digest for name, digest in header.parts.items() if name.startswith(LEDGER)}
                if not accepts(header, self._parts(database, ledger)):
                    raise CannotWrite(
                        f"{self.path} was replaced by another memory during the training; nothing was "
                        f"written to it, train again"
                    )
            _put(database, CLASSIFIER, data)
            _delete_staged(database, CLASSIFIER)

    def sizes(self) -> dict[str, int]:
        """Bytes of each part."""
        query = f"SELECT {_NAME}, length({_DATA}) FROM parts ORDER BY name"
        with self._reading() as database:
            return dict(database.execute(query).fetchall())

    def file_bytes(self) -> int:
        """Bytes of the whole file."""
        with self._reading() as database:
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            return int(pages) * PAGE

    def nbytes(self) -> int:
        """Bytes of the file without the global model and staged work, which can both be recomputed."""
        with self.at_one_moment() as now:
            sizes, size = now.sizes(), now.file_bytes() // PAGE
        derived = [n for name, n in sizes.items() if name == CLASSIFIER or name.startswith(_STAGED)]
        # A large part takes whole pages, each with a link of four bytes to the next.
        content = size - _map_pages(size) - sum(-(-count // (PAGE - 4)) for count in derived)
        pages = content
        while pages - _map_pages(pages) < content:
            pages += 1
        return pages * PAGE

    def problems(self) -> list[str]:
        """One sentence per problem of the file; empty if it is sound. Does not decode parts."""
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
            remains = find_remains(self.path)
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
        """Parts that do not match their digests or the header."""
        header = self._header(database)
        found, rows = [], {}
        for name, digest, data in database.execute(f"SELECT {_NAME}, {_DIGEST}, {_DATA} FROM parts"):
            rows[name] = digest_of(data).hex()
            if rows[name] != digest.hex():
                found.append(f"part {printable(name)} does not match its own digest")
            if name == COPY and (copy := inflate(data)) and digest_of(copy).hex() != header.digest:
                found.append("the copy of the header differs from the header")
        if COPY not in rows and sqlite.version(database) > 2:
            found.append("the copy of the header is missing")
        for name, expected in header.parts.items():
            if rows.get(name) != expected:
                problem = "does not match the header" if name in rows else "is missing"
                found.append(f"part {name} {problem}")
        listed = {HEADER, COPY, CLASSIFIER, *header.parts}
        stray = [name for name in rows if name not in listed and not name.startswith(_STAGED)]
        return found + [f"part {printable(name)} is not listed" for name in stray]

    def _header(self, database: sqlite3.Connection) -> Header:
        stored = _stored(database, HEADER)
        if stored is None or digest_of(stored[1]) != stored[0]:
            raise self._damaged("the header is damaged or missing")
        header = headers.parse(stored[1])
        if header is None:
            raise self._damaged("the header cannot be read")
        return header

    def _parts(self, database: sqlite3.Connection, digests: Mapping[str, str]) -> dict[str, bytes]:
        parts = {}
        for name, digest in digests.items():
            stored = _stored(database, name)
            if stored is None or digest_of(stored[1]).hex() != digest:
                raise self._damaged(f"part {name} is damaged or missing")
            parts[name] = stored[1]
        return parts

    def _damaged(self, problem: str) -> Damaged:
        return Damaged(f"{self.path}: {problem}; `logcl verify` says what is intact")

    def check_writable(self) -> None:
        """Raise `CannotWrite` if a commit is certain to fail: before the training, not after it."""
        real = sqlite.real(self.path)
        if not real.parent.is_dir():
            raise CannotWrite(f"the folder {real.parent} does not exist; create it first")
        if not os.access(real.parent, os.W_OK) or (self.exists() and not os.access(real, os.W_OK)):
            raise CannotWrite(f"{self.path} or its folder is read-only; nothing was changed")


def _digests(parts: Mapping[str, bytes]) -> dict[str, str]:
    return {name: digest_of(data).hex() for name, data in parts.items()}


def _stored(database: sqlite3.Connection, name: str) -> tuple[bytes, bytes] | None:
    """Digest and data of a part."""
    query = f"SELECT {_DIGEST}, {_DATA} FROM parts WHERE name = ?"
    row: tuple[bytes, bytes] | None = database.execute(query, (name,)).fetchone()
    return row


def _put(database: sqlite3.Connection, name: str, data: bytes) -> None:
    database.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", (name, digest_of(data), data))


def _delete_staged(database: sqlite3.Connection, name: str) -> None:
    database.execute("DELETE FROM parts WHERE name = ?", (_STAGED + name,))


def _write(
    database: sqlite3.Connection,
    fields: Mapping[str, Any],
    parts: Mapping[str, str],
    new: Mapping[str, bytes],
) -> None:
    """Write new parts and the header with its copy, in the current format."""
    header = to_bytes(fields, parts)
    _put(database, COPY, zlib.compress(header, 9))
    for name, data in new.items():
        _put(database, name, data)
    _put(database, HEADER, header)
    database.execute(f"PRAGMA user_version = {sqlite.FORMAT}")


def _map_pages(pages: int) -> int:
    """Number of pages that map other pages to their parents: the second, then one after every PAGE / 5."""
    return -(-(pages - 1) // (PAGE // 5 + 1))
