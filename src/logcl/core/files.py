"""Atomic writes: a file is replaced as a whole or not at all. And the folder for what can be made again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from logcl.core.errors import CannotWrite


def cache_folder() -> Path:
    """The folder for downloads, decoded arrays and weights: LOGCL_CACHE, else the platform's cache folder."""
    override = os.environ.get("LOGCL_CACHE")
    return Path(override).expanduser() if override else platformdirs.user_cache_path("logcl")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file, or leave it unchanged on any failure, including a power loss."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise CannotWrite(
            f"{path} cannot be written ({error.strerror}); check permissions and free disk space"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make new, renamed and deleted names in a folder durable, on systems that can sync a folder."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
