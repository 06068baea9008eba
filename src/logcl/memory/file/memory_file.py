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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from logcl.core.errors import CannotWrite, Damaged
from logcl.core.writer_lock import writer_lock
from logcl.memory.file import header as headers
from logcl.memory.file import parts, sqlite
from logcl.memory.file.checks import find_problems
from logcl.memory.file.header import CLASSIFIER, LEDGER, Header, digest_of
from logcl.memory.file.sqlite import committing, reading


class Usage(NamedTuple):
    """Bytes of one memory file."""

    memory: int
    """Without the global model and staged work, which can both be recomputed."""
    classifier: int
    """The global model."""
    file: int

    def named(self) -> dict[str, int]:
        """As in JSON: memory_bytes, classifier_bytes, file_bytes."""
        return {f"{name}_bytes": count for name, count in self._asdict().items()}


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
        new: Mapping[str, bytes] | None = None,
        classifier: bytes | None = None,
        check: Callable[[Path], None] | None = None,
    ) -> None:
        """Write a new memory, completely or not at all; `check` may refuse it before it has its name."""
        with self.writing():
            unlisted = {} if classifier is None else {CLASSIFIER: classifier}
            self._create(fields, new or {}, unlisted, check)

    def _create(
        self,
        fields: Mapping[str, Any],
        new: Mapping[str, bytes],
        unlisted: Mapping[str, bytes],
        check: Callable[[Path], None] | None = None,
    ) -> None:
        made = headers.make(fields, parts.digests_of(new))
        page = sqlite.page_for(sum(map(len, new.values())) + sum(map(len, unlisted.values())))
        with sqlite.appearing(self.path, lambda: MemoryFile(self.path).header() == made) as partial:
            with sqlite.connect(partial, "rwc") as database:
                database.execute(f"PRAGMA page_size = {page}")
                database.execute("PRAGMA auto_vacuum = FULL")
                with sqlite.Transaction(database):
                    database.execute(f"PRAGMA application_id = {sqlite.APPLICATION_ID}")
                    database.execute(sqlite.SCHEMA)
                    parts.write(database, fields, made.parts, {**new, **unlisted})
            if check is not None:
                check(partial)
        self._new = None

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
                raise parts.damaged(self.path, "its parts are larger than the file")
            missing = {name: digest for name, digest in header.parts.items() if digest not in known}
            return header, parts.read(database, missing, self.path)

    def commit(
        self, before: Header, fields: Mapping[str, Any], new: Mapping[str, bytes], drop: Collection[str]
    ) -> Header:
        """Replace the header and some parts in one transaction with full sync; nothing fails after it."""
        kept = {name: digest for name, digest in before.parts.items() if name not in drop}
        after = headers.make(fields, kept | parts.digests_of(new))
        if self._unborn() is not None:
            self._create(fields, new, {})
            return after
        with self._changing(before, lambda: self.header() == after) as database:
            parts.delete(database, drop)
            parts.delete_staged(database)
            parts.write(database, fields, after.parts, new)
        return after

    def stage(self, before: Header, name: str, data: bytes) -> None:
        """Store unfinished work until the next commit; it survives a crash and is not part of the content."""
        if (fields := self._unborn()) is not None:
            self._create(fields, {}, {parts.STAGED + name: data})
            return
        with self._changing(before) as database:
            parts.put(database, parts.STAGED + name, data)

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
        with self._reading() as database:
            return parts.staged(database)

    def drop_staged(self, before: Header) -> None:
        """Delete staged work, as a commit does too."""
        with self._changing(before) as database:
            parts.delete_staged(database)

    def unstage(self, name: str) -> None:
        """Delete one piece of staged work."""
        with committing(self.path) as database:
            parts.delete(database, [parts.STAGED + name])

    def read_classifier(self) -> bytes | None:
        """The global model, or None. It is derived from the memory, so the header does not list it."""
        with self._reading() as database:
            stored = parts.row(database, CLASSIFIER)
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
                if not accepts(header, parts.read(database, ledger, self.path)):
                    raise CannotWrite(
                        f"{self.path} was replaced by another memory during the training; nothing was "
                        f"written to it, train again"
                    )
            parts.put(database, CLASSIFIER, data)
            parts.delete(database, [parts.STAGED + CLASSIFIER])

    def sizes(self) -> dict[str, int]:
        """Bytes of each part."""
        with self._reading() as database:
            return parts.sizes(database)

    def file_bytes(self) -> int:
        """Bytes of the whole file."""
        return self.usage().file

    def nbytes(self) -> int:
        """Bytes of the file without the global model and staged work, which can both be recomputed."""
        return self.usage().memory

    def usage(self) -> Usage:
        """Bytes of the memory, of the global model and of the file."""
        with self._reading() as database:
            sizes, (size, page) = parts.sizes(database), sqlite.pages_of(database)
        derived = [n for name, n in sizes.items() if name == CLASSIFIER or name.startswith(parts.STAGED)]
        # A large part takes whole pages, each with a link of four bytes to the next.
        content = size - _map_pages(size, page) - sum(-(-count // (page - 4)) for count in derived)
        pages = content
        while pages - _map_pages(pages, page) < content:
            pages += 1
        return Usage(pages * page, sizes.get(CLASSIFIER, 0), size * page)

    def problems(self) -> list[str]:
        """One sentence per problem of the file; empty if it is sound. Does not decode parts."""
        return find_problems(self.path)

    def _header(self, database: sqlite3.Connection) -> Header:
        """The header, read at the start of every operation; a subclass may refuse it."""
        return parts.read_header(database, self.path)

    def check_writable(self) -> None:
        """Raise `CannotWrite` if a commit is certain to fail: before the training, not after it."""
        real = sqlite.real(self.path)
        if not real.parent.is_dir():
            raise CannotWrite(f"the folder {real.parent} does not exist; create it first")
        if not os.access(real.parent, os.W_OK) or (self.exists() and not os.access(real, os.W_OK)):
            raise CannotWrite(f"{self.path} or its folder is read-only; nothing was changed")


def _map_pages(pages: int, page: int) -> int:
    """Number of pages that map other pages to their parents: the second, then one after every page / 5."""
    return -(-(pages - 1) // (page // 5 + 1))
