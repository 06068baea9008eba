"""A shim between SQLite and the file system: it logs every change of a file, and can make one fail.

    sqlite3 (Python) ── libsqlite3 ── Shim ── the system's own VFS ── files

It is a VFS (https://sqlite.org/vfs.html) registered with ctypes in the library that Python's `sqlite3` uses,
and the default while its context lasts, so the code under test needs no change. The real VFS opens a file;
then the file's method table is replaced by a copy in which write, truncate, sync and close are ours. Locks,
shared memory and reads are the real ones.

The disk is simulated, so nothing is really synced: that would only cost time.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

Kind = Literal["create", "write", "truncate", "sync", "delete", "rename", "sync folder"]

OK, FULL = 0, 13
IOERR, IOERR_WRITE, IOERR_FSYNC, IOERR_DIR_FSYNC, IOERR_TRUNCATE, IOERR_DELETE = (
    10 | detail << 8 for detail in (0, 3, 4, 5, 6, 10)
)
DISK_FULL: Mapping[str, int] = {"write": FULL}
"""No space left, not even to overwrite, as on copy-on-write file systems."""
DISK_BROKEN: Mapping[str, int] = {
    "write": IOERR_WRITE,
    "truncate": IOERR_TRUNCATE,
    "sync": IOERR_FSYNC,
    "delete": IOERR_DELETE,
    "sync folder": IOERR_DIR_FSYNC,  # after a deletion; SQLite ignores the result for a new journal
}

_OPEN_CREATE, _OPEN_JOURNALS = 0x4, 0x800 | 0x4000 | 0x80000  # rollback, super-journal, write-ahead log


class NoShim(Exception):
    """The SQLite library of this Python cannot be reached."""


@dataclass(frozen=True)
class Event:
    """One change of the file system requested by SQLite."""

    kind: Kind
    path: str
    """The file; for `sync folder` a file in that folder. Empty for SQLite's nameless temporary files."""
    at: int = 0
    """Offset of a write; size after a truncation."""
    data: bytes = b""
    to: str = ""
    """The new name after a `rename`."""


@dataclass(frozen=True)
class Failure:
    """Which operation fails, and how."""

    codes: Mapping[str, int]
    """Kind → SQLite's error code; kinds that are not listed succeed and are not counted."""
    at: int
    """The first that fails, counted from 0 over the listed kinds."""
    lasting: bool
    """Whether all later operations of the listed kinds fail too, or only this one."""


_P, _INT, _I64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_Close = ctypes.CFUNCTYPE(_INT, _P)
_Write = ctypes.CFUNCTYPE(_INT, _P, _P, _INT, _I64)
_Truncate = ctypes.CFUNCTYPE(_INT, _P, _I64)
_Sync = ctypes.CFUNCTYPE(_INT, _P, _INT)
# Names are passed as addresses: the real VFS keeps them, and URI parameters follow the name in memory.
_Open = ctypes.CFUNCTYPE(_INT, _P, _P, _P, _INT, _P)
_Delete = ctypes.CFUNCTYPE(_INT, _P, _P, _INT)


class _Methods(ctypes.Structure):
    """sqlite3_io_methods; methods that are not replaced are plain addresses."""

    _fields_ = [
        ("iVersion", _INT),
        ("xClose", _Close),
        ("xRead", _P),
        ("xWrite", _Write),
        ("xTruncate", _Truncate),
        ("xSync", _Sync),
        *((f"x{number}", _P) for number in range(7)),  # xFileSize … xDeviceCharacteristics
        *((f"shared{number}", _P) for number in range(6)),  # xShmMap … xUnfetch, of versions 2 and 3
    ]


class _Vfs(ctypes.Structure):
    """sqlite3_vfs."""

    _fields_ = [
        ("iVersion", _INT),
        ("szOsFile", _INT),
        ("mxPathname", _INT),
        ("pNext", _P),
        ("zName", ctypes.c_char_p),
        ("pAppData", _P),
        ("xOpen", _Open),
        ("xDelete", _Delete),
        *((f"x{number}", _P) for number in range(12)),  # xAccess … xNextSystemCall
    ]


@dataclass
class _File:
    path: str
    real: _Methods
    real_address: int
    sync_folder: bool
    """The unix VFS syncs the folder inside the first sync of a new journal."""


_kept: list[Any] = []  # a connection that outlives its shim still needs its callbacks


class Shim:
    """Context in which every new connection goes through the shim."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self._failure: Failure | None = None
        self.counted = 0
        """Operations of the kinds given to `fail`, since that call."""
        self._files: dict[int, _File] = {}
        self._copies: dict[int, _Methods] = {}
        self._error: BaseException | None = None

    def __enter__(self) -> Shim:
        self._library = library()
        self._real_address = self._library.sqlite3_vfs_find(None)
        self._real = _Vfs.from_address(self._real_address)
        self._vfs = _Vfs.from_buffer_copy(self._real)
        self._vfs.pNext, self._vfs.zName = None, b"logcl-torture"
        self._callbacks = {
            "xClose": _Close(self._guarded(self._close)),
            "xWrite": _Write(self._guarded(self._write)),
            "xTruncate": _Truncate(self._guarded(self._truncate)),
            "xSync": _Sync(self._guarded(self._sync)),
        }
        self._vfs.xOpen = _Open(self._guarded(self._open))
        self._vfs.xDelete = _Delete(self._guarded(self._delete))
        _kept.append((self._vfs, self._callbacks, self._copies))
        if self._library.sqlite3_vfs_register(ctypes.addressof(self._vfs), 1) != OK:
            raise NoShim("SQLite refused to register a VFS")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.sqlite3_vfs_unregister(ctypes.addressof(self._vfs))
        self._library.sqlite3_vfs_register(self._real_address, 1)
        if self._error is not None:
            raise self._error

    def take(self) -> list[Event]:
        """The log so far; starts a new one."""
        taken, self.log = self.log, []
        return taken

    def fail(self, failure: Failure | None) -> None:
        """Make an operation fail, counted from now on; None: all succeed again."""
        self._failure, self.counted = failure, 0

    @property
    def failed(self) -> bool:
        """Whether the failure has happened."""
        return self._failure is not None and self.counted > self._failure.at

    def _guarded(self, call: Callable[..., int]) -> Callable[..., int]:
        """An exception cannot pass through SQLite: it becomes an I/O error and is raised at the end."""

        def guarded(*arguments: Any) -> int:
            try:
                return call(*arguments)
            except BaseException as error:  # noqa: BLE001
                self._error = error
                return IOERR

        return guarded

    def _code(self, kind: Kind) -> int:
        failure = self._failure
        if failure is None or kind not in failure.codes:
            return OK
        number = self.counted
        self.counted += 1
        hit = number >= failure.at if failure.lasting else number == failure.at
        return failure.codes[kind] if hit else OK

    def _open(self, _vfs: int, name: int | None, file: int, flags: int, out_flags: int | None) -> int:
        path = os.fsdecode(ctypes.string_at(name)) if name else ""
        new = bool(path) and bool(flags & _OPEN_CREATE) and not os.path.lexists(path)
        code: int = self._real.xOpen(self._real_address, name, file, flags, out_flags)
        methods = ctypes.cast(file, ctypes.POINTER(_P))  # the first field of sqlite3_file
        address = methods[0]
        if code != OK or not address:
            return code
        if new:
            self.log.append(Event("create", path))
        real = _Methods.from_address(address)
        if address not in self._copies:
            copy = _Methods.from_buffer_copy(real)
            for method, callback in self._callbacks.items():
                setattr(copy, method, callback)
            self._copies[address] = copy
        journal = bool(flags & _OPEN_CREATE) and bool(flags & _OPEN_JOURNALS)
        self._files[file] = _File(path, real, address, journal)
        methods[0] = ctypes.addressof(self._copies[address])
        return code

    def _close(self, file: int) -> int:
        opened = self._files.pop(file)
        ctypes.cast(file, ctypes.POINTER(_P))[0] = opened.real_address
        return int(opened.real.xClose(file))

    def _write(self, file: int, data: int, count: int, offset: int) -> int:
        opened, failed = self._files[file], self._code("write")
        if failed:
            count //= 2  # a full disk still writes what fits
        code = int(opened.real.xWrite(file, data, count, offset)) if count else OK
        self.log.append(Event("write", opened.path, offset, ctypes.string_at(data, count)))
        return failed or code

    def _truncate(self, file: int, size: int) -> int:
        opened, failed = self._files[file], self._code("truncate")
        if failed:
            return failed
        self.log.append(Event("truncate", opened.path, size))
        return int(opened.real.xTruncate(file, size))

    def _sync(self, file: int, _flags: int) -> int:
        opened, failed = self._files[file], self._code("sync")
        if failed:
            return failed
        self.log.append(Event("sync", opened.path))
        if opened.sync_folder:
            self.log.append(Event("sync folder", opened.path))
            opened.sync_folder = False
        return OK

    def _delete(self, _vfs: int, name: int, sync_folder: int) -> int:
        path = os.fsdecode(ctypes.string_at(name))
        failed = self._code("delete")
        if failed:
            return failed
        code = int(self._real.xDelete(self._real_address, name, 0))
        if code == OK:
            self.log.append(Event("delete", path))
            if sync_folder:
                failed = self._code("sync folder")
                if not failed:
                    self.log.append(Event("sync folder", path))
        return failed or code


def library() -> ctypes.CDLL:
    """The SQLite library that this Python's `sqlite3` is linked to; raises `NoShim`."""
    module = importlib.import_module("_sqlite3")
    try:
        # A symbol that the module lacks is looked up in the libraries it is linked to.
        found = ctypes.CDLL(getattr(module, "__file__", None))
        found.sqlite3_libversion.restype = ctypes.c_char_p
        version = found.sqlite3_libversion().decode()
        found.sqlite3_vfs_find.restype = _P
        found.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
        found.sqlite3_vfs_register.argtypes = [_P, _INT]
        found.sqlite3_vfs_unregister.argtypes = [_P]
    except (OSError, AttributeError, TypeError) as error:
        raise NoShim(f"the SQLite library behind Python's sqlite3 cannot be reached ({error})") from error
    if version != sqlite3.sqlite_version:
        raise NoShim(f"found SQLite {version}, but Python's sqlite3 uses {sqlite3.sqlite_version}")
    default = found.sqlite3_vfs_find(None)
    if not default or not (_Vfs.from_address(default).zName or b"").startswith(b"unix"):
        raise NoShim("the default VFS is not the unix one, whose habits the shim knows")
    return found
