"""Reading archives in place: nothing is extracted to disk, and unsafe member names are refused."""

from __future__ import annotations

import stat
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from logcl.core.errors import DataError
from logcl.core.text import printable

_DAMAGE = (
    EOFError, zlib.error, struct.error, zipfile.BadZipFile, tarfile.TarError, NotImplementedError,
    RuntimeError, SyntaxError, UnicodeError, OverflowError, MemoryError, tokenize.TokenError,
)  # fmt: skip


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """Turn errors of reading a file into a DataError whose message ends with the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise DataError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
        raise DataError(f"{path} is damaged ({printable(error)}); {remedy}") from error
    except _DAMAGE as error:
        reason = printable(" ".join(str(error).split())[:200]) or type(error).__name__
        raise DataError(f"{path} is damaged or truncated ({reason}); {remedy}") from error


def zip_members(archive: zipfile.ZipFile, path: Path, remedy: str) -> list[zipfile.ZipInfo]:
    """The files of a zip archive; unsafe names and links are refused."""
    members = archive.infolist()
    for member in members:
        _check_name(path, member.filename, remedy)
        if stat.S_ISLNK(member.external_attr >> 16):
            raise DataError(f"{path} holds the symbolic link {member.filename!r}; {remedy}")
    return [member for member in members if not member.is_dir()]


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, limit: int) -> bytes:
    """The content of a zip member; an error if it has more than `limit` bytes, whatever its header claims."""
    with archive.open(member) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise zipfile.BadZipFile(f"{member.filename} has more than {limit} bytes")
    return content


def tar_members(path: Path, wanted: Collection[str], remedy: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield base name and content of the wanted files of a .tar.gz; read each before the next."""
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            _check_name(path, member.name, remedy)
            if not (member.isfile() or member.isdir()):
                raise DataError(f"{path} holds {member.name!r}, which is not a regular file; {remedy}")
            name = PurePosixPath(member.name).name
            if name in wanted and (file := archive.extractfile(member)) is not None:
                yield name, file


def _check_name(path: Path, name: str, remedy: str) -> None:
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise DataError(f"{path} holds the unsafe name {name!r}; {remedy}")
