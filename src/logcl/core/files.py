"""Files are replaced as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from logcl.core.errors import CannotWrite


def write_atomically(path: Path, content: bytes) -> None:
    """The whole file or no change, also if the power fails."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written ({error.strerror})") from error
    finally:
        partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
