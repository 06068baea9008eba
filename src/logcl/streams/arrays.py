"""`.npz` files with x and y, or x_train, y_train, x_test and y_test; read in blocks, never unpickled."""

from __future__ import annotations

import math
import sys
import warnings
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logcl.core.errors import BadInput, DataError
from logcl.core.inputs import LONGEST_LABEL, to_uint8
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageShape
from logcl.core.text import printable
from logcl.streams.archives import reading
from logcl.streams.cache import Blueprint, Decoded, cached, fingerprint, name_of
from logcl.streams.images import class_sorted
from logcl.streams.stream import Classes, Pixels, Task

_BLOCK_BYTES = 1 << 23
_CHANNELS = (1, 3, 4)
_LARGEST_RATIO = 1100  # deflate cannot compress further, so a header that claims more is wrong
_SMALL, _USUAL_RATIO = 2**28, 128  # limits on images: bytes, or else multiples of the bytes of the file
_SILENT = Silent()
_REMEDY = "save it again with np.savez"


@dataclass(frozen=True)
class _Layout:
    """How an array of images is stored in the file."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    channels_last: bool

    @property
    def image_shape(self) -> ImageShape:
        if len(self.shape) == 3:
            return 1, self.shape[1], self.shape[2]
        _, a, b, c = self.shape
        return (c, a, b) if self.channels_last else (a, b, c)


def read_npz(path: str | Path) -> tuple[Pixels, NDArray[Any]]:
    """The training samples of an `.npz`: images uint8 (n, C, H, W) and labels (n,) as stored."""
    path = Path(path)
    with reading(path, _REMEDY):
        train, _ = _part_names(path)
        labels = _labels(path, train[1])
        layout = _layout(path, train[0], len(labels))
        images = np.empty((len(labels), *layout.image_shape), np.uint8)
        _fill(path, layout, images, _SILENT)
    return images, labels


def read_npz_images(path: str | Path) -> Pixels:
    """The images of an `.npz`, labelled or not: its array x, x_test or the only one; uint8 (n, C, H, W)."""
    path = Path(path)
    with reading(path, _REMEDY):
        names = _names(path)
        only = next(iter(names)) if len(names) == 1 else None
        name = next((name for name in ("x", "x_test") if name in names), only)
        if name is None:
            raise BadInput(f"{path} holds {_listed(names)} but no x; {_REMEDY}")
        layout = _layout(path, name, None)
        images = np.empty((layout.shape[0], *layout.image_shape), np.uint8)
        _fill(path, layout, images, _SILENT)
    return images


def load_npz(path: Path, progress: Progress) -> Decoded:
    """The arrays of an `.npz` as images uint8 (n, C, H, W) and class indices; cached."""

    def plan() -> Blueprint:
        with reading(path, _REMEDY):
            return _plan(path, progress)

    with reading(path, _REMEDY):
        mark = fingerprint([path])
    return cached(name_of(path), mark, plan)


def _plan(path: Path, progress: Progress) -> Blueprint:
    train, test = _part_names(path)
    pairs = {"train": train, "test": test} if test else {"train": train}
    labels = {part: _labels(path, pair[1]) for part, pair in pairs.items()}
    layouts = {part: _layout(path, pair[0], len(labels[part])) for part, pair in pairs.items()}
    shape = layouts["train"].image_shape
    if test and layouts["test"].image_shape != shape:
        raise BadInput(f"{path}: x_train and x_test have images of different shapes; make them equal")
    if test and (labels["test"].dtype.kind == "U") != (labels["train"].dtype.kind == "U"):
        raise BadInput(f"{path}: one of y_train and y_test has integers, the other strings; make them alike")
    classes = class_sorted(str(label) for label in np.unique(labels["train"]))
    if test and (unknown := set(map(str, np.unique(labels["test"]))) - set(classes)):
        raise BadInput(f"{path}: label {min(unknown)} of y_test is not in y_train; remove those samples")

    def fill(parts: Mapping[str, Task]) -> None:
        with reading(path, _REMEDY):
            for part, out in parts.items():
                _fill(path, layouts[part], out.x, progress)
                out.y[:] = _positions(labels[part], classes)

    return Blueprint(classes, shape, {part: len(values) for part, values in labels.items()}, fill)


def _part_names(path: Path) -> tuple[tuple[str, str], tuple[str, str] | None]:
    names = _names(path)
    if {"x_train", "y_train", "x_test", "y_test"} <= names:
        return ("x_train", "y_train"), ("x_test", "y_test")
    if {"x", "y"} <= names:
        return ("x", "y"), None
    raise BadInput(f"{path} holds {_listed(names)}; save x and y, or x_train, y_train, x_test and y_test")


def _names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}


def _listed(names: Collection[str]) -> str:
    return printable(", ".join(sorted(names)[:20])[:200]) or "nothing"


@contextmanager
def _opened(path: Path, name: str) -> Iterator[tuple[_Header, IO[bytes]]]:
    """The header of an array, checked against the size of the file, and the file at its first value."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        # Other methods can expand a few bytes to any size before the first read returns.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{path}: array {printable(name)} uses an unsupported compression; {_REMEDY}")
        with archive.open(member) as file:
            header = _header(path, name, file)
            if header.size > min(member.file_size, _LARGEST_RATIO * path.stat().st_size):
                raise DataError(f"{path}: array {printable(name)} is truncated; {_REMEDY}")
            if math.prod(header.shape) > max(_SMALL, _USUAL_RATIO * path.stat().st_size):
                raise DataError(
                    f"{path}: array {printable(name)} expands to far more bytes than the file has; "
                    "save it as uint8 without compression"
                )
            yield header, file


class _Header(NamedTuple):
    """Shape, order and type of an array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


def _header(path: Path, name: str, file: IO[bytes]) -> _Header:
    """Read the header of an array, which leaves `file` at the first value."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd literals in the header
            shape, fortran, dtype = read(file)
    # Python's parser and numpy's parser of types fail in many ways.
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError) as error:
        reason = printable(" ".join(str(error).split())[:200]) or type(error).__name__
        raise DataError(f"{path}: array {printable(name)} is damaged ({reason}); {_REMEDY}") from error
    if dtype.hasobject:
        raise BadInput(
            f"{path}: array {printable(name)} holds Python objects, which are never loaded because they can "
            "run code; save numbers or strings of one type"
        )
    # In Python True is an integer, but it is not a valid side.
    if any(type(side) is not int or side < 0 for side in shape) or dtype.itemsize < 1:
        raise DataError(f"{path}: array {printable(name)} has an invalid shape or type; {_REMEDY}")
    return _Header(shape, fortran, dtype)


def _values(file: IO[bytes], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The next `count` values of an array."""
    content = file.read(count * dtype.itemsize)
    if len(content) != count * dtype.itemsize:
        raise EOFError("an array ends early")
    return np.frombuffer(content, dtype)


def _labels(path: Path, name: str) -> NDArray[Any]:
    with _opened(path, name) as ((shape, _, dtype), file):
        _check_labels(path, name, shape, dtype)
        labels = _values(file, math.prod(shape), dtype)
    if dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{path}: {name} has byte strings that are not UTF-8; save them as str") from error
    if dtype.kind == "U":
        labels = labels.astype(dtype.newbyteorder("="))
        if labels.view(np.uint32).max() > sys.maxunicode:
            raise BadInput(f"{path}: {name} has strings that are not valid text; save them again")
    if dtype.kind in "US" and np.char.str_len(labels).max() > LONGEST_LABEL:
        raise BadInput(f"{path}: {name} has labels of more than {LONGEST_LABEL} characters; shorten them")
    return labels


def _check_labels(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) == 2 and shape[1] == 1:
        shape = shape[:1]
    if len(shape) != 1 or shape[0] < 1:
        raise BadInput(f"{path}: {name} has shape {shape}; save one label per sample, shape (n,)")
    if dtype.kind not in "iuUS":
        raise BadInput(f"{path}: {name} has type {dtype}; save integers or strings")


def _positions(labels: NDArray[Any], classes: tuple[str, ...]) -> Classes:
    index = {name: position for position, name in enumerate(classes)}
    values, inverse = np.unique(labels, return_inverse=True)
    return np.array([index[str(value)] for value in values], np.int64)[inverse.reshape(-1)]


def _layout(path: Path, name: str, samples: int | None) -> _Layout:
    with _opened(path, name) as (header, _):
        shape, fortran, dtype = header
    if dtype.kind not in "uif":
        raise BadInput(f"{path}: {name} has type {dtype}; save integers in 0 to 255 or floats in [0, 1]")
    last = len(shape) == 4 and shape[1] not in _CHANNELS and shape[3] in _CHANNELS
    grey = len(shape) == 3
    if not (grey or last or (len(shape) == 4 and shape[1] in _CHANNELS)) or min(shape) < 1:
        raise BadInput(
            f"{path}: {name} has shape {shape}; save images as (n, height, width), or as "
            "(n, channels, height, width) or (n, height, width, channels) with 1, 3 or 4 channels"
        )
    if samples is not None and shape[0] != samples:
        raise BadInput(f"{path}: {name} has {shape[0]} images for {samples} labels; save as many of each")
    return _Layout(name, shape, dtype, fortran, last)


def _fill(path: Path, layout: _Layout, out: Pixels, progress: Progress) -> None:
    """Read images into `out` (n, C, H, W) block by block."""
    start = 0
    with progress.track(f"reading {layout.name}", len(out)) as advance:
        for block in _blocks(path, layout):
            try:
                values = to_uint8(block)
            except BadInput as error:
                raise BadInput(f"{path}: in {layout.name}, {error}") from error
            rows = out[start : start + len(values)]
            rows[:] = values.transpose(0, 3, 1, 2) if layout.channels_last else values.reshape(rows.shape)
            start += len(values)
            advance(len(values))


def _blocks(path: Path, layout: _Layout) -> Iterator[NDArray[Any]]:
    count, *image = layout.shape
    # In Fortran order samples are interleaved, so the array has to be read whole.
    at_once = count if layout.fortran else max(1, _BLOCK_BYTES // (math.prod(image) * layout.dtype.itemsize))
    with _opened(path, layout.name) as (_, file):
        for start in range(0, count, at_once):
            rows = min(at_once, count - start)
            values = _values(file, rows * math.prod(image), layout.dtype)
            yield values.reshape(rows, *image, order="F" if layout.fortran else "C")
