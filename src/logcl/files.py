"""Files are replaced as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from logcl.errors import CannotWrite


def write_atomically(path: Path, content: bytes) -> None:
    """The whole file or no change."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written ({error.strerror})") from error
    finally:
        partial.unlink(missing_ok=True)
