"""The memories behind integrations: at the user's path, or in a temporary file if there is none."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from logcl.core.errors import CannotWrite, NotAMemory
from logcl.memory import ledger
from logcl.memory.file import parts
from logcl.memory.file.header import Header
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.file.sqlite import appearing, connect, reading, write_errors
from logcl.memory.lineage import Lineage
from logcl.memory.loading import Loader
from logcl.memory.manifest import Manifest
from logcl.memory.memory import Memory

_FIRST = ledger.part_name(0)


class PathFile(MemoryFile):
    """A memory file that is refused once another memory has taken its place."""

    def __init__(self, path: str | os.PathLike[str], lineage: Lineage | None) -> None:
        super().__init__(path)
        self.lineage = lineage
        self._checked: str | None = None

    def _header(self, database: sqlite3.Connection) -> Header:
        # Every operation reads the header in its own transaction, so nothing is read from, or written to, a
        # memory that was not checked.
        header = super()._header(database)
        if header.digest != self._checked:
            found = self._lineage(header, database)
            if self.lineage is not None and not self.lineage.includes(found):
                raise NotAMemory(
                    f"{self.path} is another memory than the one that was used before; put that one back, or "
                    f"start anew with this one"
                )
            self.lineage, self._checked = found, header.digest
        return header

    def _lineage(self, header: Header, database: sqlite3.Connection) -> Lineage:
        first = {name: digest for name, digest in header.parts.items() if name == _FIRST}
        found = parts.read(database, first, self.path)
        entries = [ledger.from_bytes(data, f"{self.path}: part {name}")[0] for name, data in found.items()]
        return Lineage.of(Manifest.of(header, self.path), entries)


class PathMemory(Memory):
    """The memory at a user's path. A pickle contains the path and the lineage."""

    file: PathFile

    def __init__(self, path: str | os.PathLike[str], lineage: Lineage | None = None) -> None:
        super().__init__(path)
        self.file = PathFile(path, lineage)
        self._loader = Loader(self.file)

    def __reduce__(self) -> tuple[Any, ...]:
        return PathMemory, (str(self.path), self.file.lineage)


class TemporaryMemory(Memory):
    """A memory whose file is deleted with this object, or when the process ends; a pickle contains the file.

    The file does not exist until it is created, or written from the `content` of another one.
    """

    def __init__(self, content: bytes | None = None) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="logcl-")) / "memory.logcl")
        self._owner = os.getpid()
        # Unlike weakref.finalize, this does nothing in forked children that merely inherited the object, and
        # still runs at the end of a child of multiprocessing that created one.
        Finalize(self, shutil.rmtree, (self.path.parent, True), exitpriority=0)
        if content is not None:
            self.path.write_bytes(content)

    def owned(self) -> TemporaryMemory:
        """This memory, or a copy in a forked child: it must not write to the file of its parent."""
        return self if self._owner == os.getpid() else TemporaryMemory(to_bytes(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return TemporaryMemory, (to_bytes(self),)


@contextmanager
def creating(path: str | os.PathLike[str] | None) -> Iterator[TemporaryMemory]:
    """A temporary memory for the first task, which appears at the path in one step after the block.

    If a memory without samples is at the path, the temporary one is a copy of it.
    """
    if path is None:
        yield TemporaryMemory()
        return
    file = MemoryFile(path)
    with file.writing():
        before = file.header() if file.exists() else None
        if before is not None and Manifest.of(before, file.path).n:
            raise CannotWrite(f"{file.path} was filled by another program meanwhile; try again")
        new = TemporaryMemory(None if before is None else to_bytes(Memory(path)))
        yield new
        if before is not None:
            _copy(new.path, file.path, file.path)
            return
        with appearing(file.path) as partial:
            _copy(new.path, partial, file.path)


def to_bytes(memory: Memory) -> bytes:
    """The whole file of a memory, as of one commit."""
    with tempfile.TemporaryDirectory(prefix="logcl-") as folder:
        copy = Path(folder) / "copy.logcl"
        _copy(memory.path, copy, copy)
        return copy.read_bytes()


def _copy(source: Path, target: Path, name: Path) -> None:
    """Copy a memory file in one transaction; `name` is what error messages call the target."""
    # Not by reading the file: closing it would release all locks of this process on it, even those of a
    # thread in the middle of a commit (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    with reading(source) as here, write_errors(name), connect(target, "rwc") as there:
        here.backup(there)
