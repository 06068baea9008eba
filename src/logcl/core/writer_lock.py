"""One writer at a time: a lock beside the memory that the system itself releases when its holder dies.

SQLite's own locks last for a commit; training lasts for minutes before it. The lock is a file beside the
memory, locked by the operating system and removed afterwards; it says who holds it. A holder that was
killed leaves the file but not the lock, and the next writer takes it over.
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

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_held: set[int] = set()


def _forget_locks() -> None:
    """In a forked child: a lock belongs to the parent, and must not outlive it in a data loader's worker."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


@contextmanager
def writer_lock(memory: Path) -> Iterator[None]:
    """Hold the lock of `memory`; raises `Busy` at once, naming the holder, if another process has it."""
    real = memory.resolve()  # by whatever link it was found
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
        if os.getpid() == owner:  # not a child that was forked meanwhile and leaves by the same road
            # Removed while still locked, so that nobody can lock a file that is about to vanish unseen.
            with suppress(OSError):
                path.unlink()
            _held.discard(handle)
            os.close(handle)


def _acquire(path: Path, memory: Path) -> int:
    while True:
        try:
            # Not through a link: whatever it led to would be emptied.
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except OSError as error:
            raise CannotWrite(f"{memory} cannot be locked for writing ({error.strerror}: {path})") from error
        try:
            locked = _try_lock(handle)
        except OSError as error:
            os.close(handle)
            raise CannotWrite(
                f"{memory} is on a file system without locks ({error.strerror}), and two writers could meet; "
                f"keep it elsewhere"
            ) from error
        if not locked:
            os.close(handle)
            raise Busy(f"{memory} is being written by {_holder(path)}; try again when it has finished")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)  # the holder removed this file between our open and our lock: take the new one


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"  # caught in the instant between locking and writing its name
