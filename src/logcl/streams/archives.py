"""Reading files that may be damaged or hostile: archives are read in place, never extracted to disk."""

from __future__ import annotations

import gzip
import pickle
import re
import stat
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from logcl.core.errors import DataError, LogCLError

# What decoders raise on damaged files (Pillow's found by fuzzing).
_DAMAGE = (
    OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError,
    NotImplementedError, RuntimeError, MemoryError, pickle.PickleError, struct.error, tarfile.TarError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@contextmanager
def reading(path: Path | str, remedy: str = "replace or remove it") -> Iterator[None]:
    """Turn errors of reading a file into a DataError; for a damaged one it ends with the remedy."""
    try:
        if (place := Path(path)).exists() and not (place.is_file() or place.is_dir()):
            # a pipe, socket or device; reading one could block
            raise DataError(f"{path} is not a regular file; give a file or a folder")
        yield
    except LogCLError:
        raise
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        if isinstance(error, OSError) and error.errno is not None:
            path = error.filename or path
            message = f"{path} cannot be read ({error.strerror}); check the path and its permissions"
        elif isinstance(error, MemoryError):
            message = f"{path} does not fit into memory; make it smaller"
        else:
            message = f"{path} is damaged or truncated ({reason}); {remedy}"
        raise DataError(message) from error


def members(path: Path, wanted: str, limit: int, remedy: str) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of files in a .zip, a .tar.gz or the sub-sub-folders of a folder.

    Any other path is a single file, gzipped or not. `wanted` is a pattern of the whole name. Unsafe names,
    links and wanted files of more than `limit` bytes, whatever their headers claim, are errors.
    """
    with reading(path, remedy):
        for name, is_regular, opened in _entries(path):
            parts = name.replace("\\", "/").split("/")
            if not parts[0] or ".." in parts or ":" in parts[0]:
                raise DataError(f"{path} holds the unsafe name {name!r}; {remedy}")
            if not is_regular:
                raise DataError(f"{path} holds {name!r}, which is not a regular file; {remedy}")
            if re.fullmatch(wanted, name):
                with opened() as file:
                    content = file.read(limit + 1)
                if len(content) > limit:
                    raise DataError(f"{path} holds {name!r} of more than {limit:,} bytes; {remedy}")
                yield name, content


def _entries(path: Path) -> Iterator[tuple[str, bool, Callable[[], Any]]]:
    """Names of the files, whether they are regular ones, and functions that open them."""
    archive: Any
    if path.is_dir():
        for file in sorted(path.glob("*/*/*")):
            yield file.relative_to(path.parent).as_posix(), True, partial(file.open, "rb")
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                is_link = stat.S_ISLNK(member.external_attr >> 16)
                if not member.is_dir():
                    yield member.filename, not is_link, partial(archive.open, member)
    elif path.name.endswith(".tar.gz"):
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                if not member.isdir():
                    yield member.name, member.isfile(), partial(archive.extractfile, member)
    else:
        yield path.name, True, partial(gzip.open if path.suffix == ".gz" else open, path, "rb")
