"""Reads the Python version of CIFAR-100, which is a pickle, without running any code it names.

A pickle can call functions by name. Here each name it may use is replaced by a stand-in that only stores its
arguments, and any other name is an error: not even numpy sees the values before they are checked.
"""

from __future__ import annotations

import pickle
from typing import Any, Protocol

import numpy as np

from logcl.streams.stream import Classes, Pixels

_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, EOFError, ImportError, OverflowError)


class Readable(Protocol):
    """The part of a file that unpickling needs."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes."""

    def readline(self) -> bytes:
        """The next line."""


class _Kept:
    """Stand-in for an array or a type: stores the arguments and state from the file."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: tuple[object, ...] = ()

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.state = state


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 stores bytes in old pickles."""
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
            raise pickle.UnpicklingError(f"it needs {module}.{name}") from None

    def persistent_load(self, pid: object) -> Any:
        raise pickle.UnpicklingError(f"it needs the object {pid!r}")


def read_pickled(file: Readable, samples: int) -> tuple[Pixels, Classes]:
    """Images (n, 3, 32, 32) and fine labels (n,) of one file of the Python version.

    Raises pickle.UnpicklingError if the file is anything else.
    """
    try:
        content = _Reader(file, encoding="bytes").load()
        data, labels = content[b"data"], content[b"fine_labels"]
        _, shape, kind, fortran, values = data.state
        if shape != (samples, 3072) or fortran or kind.arguments[0] not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"its images have shape {shape}")
        images: Pixels = np.frombuffer(values, np.uint8).reshape(samples, 3, 32, 32)
        classes: Classes = np.array(labels, np.int64).reshape(samples)
    except pickle.UnpicklingError:
        raise
    except _DAMAGE as error:
        raise pickle.UnpicklingError(f"it is not a part of CIFAR-100: {error}") from error
    return images, classes
