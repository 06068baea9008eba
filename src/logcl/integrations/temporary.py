"""A memory in a temporary file, for integrations whose user gives no path."""

from __future__ import annotations

import os
import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from logcl.memory.file.sqlite import reading
from logcl.memory.memory import Memory


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
        return self if self._owner == os.getpid() else TemporaryMemory(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The whole file, as of one commit."""
        with reading(self.path) as database:
            database.execute("SELECT 1 FROM sqlite_master").fetchone()  # locks the file, BEGIN does not
            return self.path.read_bytes()

    def __reduce__(self) -> tuple[Any, ...]:
        return TemporaryMemory, (self.to_bytes(),)
