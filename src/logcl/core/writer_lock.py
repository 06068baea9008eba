"""One writer at a time, enforced by a lock file next to the memory.

SQLite's own locks cover only the commit, not the minutes of training before it. The lock file names its
holder, is locked by the operating system and is removed afterwards. A process that is killed leaves the file
but not the lock, so the next writer can take it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from logcl.core.errors import Busy, CannotWrite

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


_held: set[int] = set()


def _forget_locks() -> None:
    """In a forked child, e.g. a data loader's worker, which must not keep its dead parent's lock alive."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


@contextmanager
def writer_lock(memory: Path) -> Iterator[None]:
    """Hold the lock of `memory`; raise `Busy` at once, naming the holder, if another process has it."""
    real = memory.resolve()  # one lock per file, even if it is opened through a link
    path = real.with_name(real.name + ".lock")
    handle = _acquire(path, memory)
    _held.add(handle)
    owner = os.getpid()
    try:
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        try:
            os.truncate(handle, 0)
            os.write(handle, json.dumps(holder).encode())
        except OSError as error:
            raise CannotWrite(
                f"{memory} cannot be locked for writing ({error.strerror}); free space on the disk"
            ) from error
        yield
    finally:
        if os.getpid() == owner:  # not in a child that was forked inside the context
            # Removed while still locked: otherwise another process could lock the file just before it goes.
            with suppress(OSError):
                path.unlink()
            _held.discard(handle)
            os.close(handle)


def _acquire(path: Path, memory: Path) -> int:
    while True:
        try:
            # Never through a link, whose target would be truncated.
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except OSError as error:
            raise CannotWrite(
                f"{memory} cannot be locked for writing ({error.strerror}: {path}); check the permissions"
            ) from error
        try:
            _lock(handle)
        except (BlockingIOError, PermissionError):  # what Unix and Windows raise if the file is locked
            os.close(handle)
            busy = f"{memory} is being written by {_holder(path)}; try again when it has finished"
            raise Busy(busy) from None
        except OSError as error:
            os.close(handle)
            raise CannotWrite(
                f"{memory} is on a file system without locks ({error.strerror}); move it to one that has them"
            ) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)  # its holder removed this file between open and lock: try again with the new one


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"  # read between locking and writing
