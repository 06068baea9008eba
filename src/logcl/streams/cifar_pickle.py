"""The Python version of CIFAR-100 is pickled; this reads it without running anything that is in the file.

A pickle names functions and calls them. Here every name it may use stands for an inert stand-in that only
keeps its arguments, and any other name is an error: not even numpy's own code sees the file's values before
they were checked.
"""

from __future__ import annotations

import pickle
from typing import Any, Protocol

import numpy as np

from logcl.streams.stream import Classes, Pixels


class Readable(Protocol):
    """What unpickling needs of a file."""

    def read(self, size: int, /) -> bytes:
        """So many bytes, fewer at the end."""

    def readline(self) -> bytes:
        """Up to the next line end."""


class _Kept:
    """Stands for an array or an array type: keeps what the file says about it."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: tuple[object, ...] = ()

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.state = state


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in old pickles."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("unexpected encoding")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Kept,
    ("numpy._core.multiarray", "_reconstruct"): _Kept,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Kept,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None

    def persistent_load(self, pid: object) -> Any:
        raise pickle.UnpicklingError(f"it asks for the object {pid!r}")


def read_pickled(file: Readable, samples: int) -> tuple[Pixels, Classes]:
    """Images (n, 3, 32, 32) and fine labels (n,) of one file of the Python version.

    Raises pickle.UnpicklingError if the file is anything else.
    """
    try:
        content = _Reader(file, encoding="bytes").load()
        data, labels = content[b"data"], content[b"fine_labels"]
        _, shape, kind, fortran, values = data.state
        if shape != (samples, 3072) or fortran or kind.arguments[0] not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"its images have the shape {shape}")
        images: Pixels = np.frombuffer(values, np.uint8).reshape(samples, 3, 32, 32)
        classes: Classes = np.array(labels, np.int64).reshape(samples)
    except pickle.UnpicklingError:
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        EOFError,
        ImportError,
        OverflowError,
    ) as error:
        raise pickle.UnpicklingError(f"it is not a part of CIFAR-100: {error}") from error
    return images, classes
