"""One writer at a time, enforced by a lock file next to the memory and a lock on the memory itself.

SQLite's own locks cover only the commit, not the minutes of training before it. The lock file names its
holder, is locked by the operating system and is removed afterwards. A process that is killed leaves the file
but not the lock, so the next writer can take it. A lock file protects a path, even before the memory exists
there; the memory itself is locked as well, because hard links give one file several paths.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
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
_released: list[int] = []  # handles of memories, to be closed once no database is open
_databases = 0
_guard = threading.RLock()  # not Lock: Ctrl-C between a body and its release must not block for ever

_LOCKED_BYTE = 0x40000000 + 1024  # SQLite locks the 512 bytes from 0x40000000 on


def _forget_locks() -> None:
    """In a forked child, e.g. a data loader's worker, which must not keep its dead parent's lock alive."""
    global _guard
    _guard = threading.RLock()  # a thread that does not exist here may have held it
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
        with _inode_lock(real, memory):
            yield
    finally:
        if os.getpid() == owner:  # not in a child that was forked inside the context
            # Removed while still locked: otherwise another process could lock the file just before it goes.
            with suppress(OSError):
                path.unlink()
            _held.discard(handle)
            os.close(handle)


@contextmanager
def _inode_lock(real: Path, memory: Path) -> Iterator[None]:
    """Lock one byte of the file itself, if it exists, far from those that SQLite locks."""
    if sys.platform != "linux":
        yield  # other systems have no locks per handle, which are independent of SQLite's
        return
    try:
        handle = os.open(real, os.O_RDWR)
    except OSError:  # a new memory; otherwise the commit says what is wrong
        yield
        return
    _held.add(handle)
    owner = os.getpid()
    try:
        try:
            _lock_byte(handle, fcntl.F_WRLCK)
        except BlockingIOError:
            raise Busy(
                f"{memory} is being written by another process under another name of the same file; try "
                f"again when it has finished"
            ) from None
        except OSError as error:
            raise CannotWrite(
                f"{memory} is on a file system without locks ({error.strerror}); move it to one that has them"
            ) from error
        yield
    finally:
        if os.getpid() == owner:
            with suppress(OSError):
                _lock_byte(handle, fcntl.F_UNLCK)
            _held.discard(handle)
            with _guard:
                _released.append(handle)
                _close_released()


@contextmanager
def open_database() -> Iterator[None]:
    """To be entered while SQLite has a memory open.

    Closing any handle of a file releases all POSIX locks that the process holds on it, including those of a
    commit in another thread. SQLite delays its own closing for that reason; so do we.
    """
    global _databases
    with _guard:
        _databases += 1
    try:
        yield
    finally:
        with _guard:
            _databases -= 1
            _close_released()


def _close_released() -> None:
    while not _databases and _released:
        os.close(_released.pop())


if sys.platform == "linux":

    def _lock_byte(handle: int, kind: int) -> None:
        """Lock (F_WRLCK) or unlock (F_UNLCK) for this open file, not for the process as POSIX locks do."""
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, _LOCKED_BYTE, 1, 0))


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
