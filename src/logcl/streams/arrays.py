"""`.npz` files with x and y, or x_train, y_train, x_test and y_test; read in blocks, never unpickled."""

from __future__ import annotations

import math
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logcl.core.errors import BadInput, DataError
from logcl.core.inputs import LONGEST_LABEL, to_uint8
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageShape
from logcl.streams.archives import reading
from logcl.streams.cache import Blueprint, Decoded, cached, fingerprint, name_of
from logcl.streams.stream import Pixels, Task, class_indices, class_sorted

_BLOCK_BYTES = 1 << 23
_CHANNELS = (1, 3, 4)
_LARGEST_RATIO = 1100  # deflate cannot compress further, so a header that claims more is wrong
# Values that all arrays of a file may have, and per byte of the file; and the same for bytes of labels.
_MOST, _PER_BYTE = 2**26, 64
_MOST_LABELS, _LABELS_PER_BYTE = 2**25, 16
_SILENT = Silent()
_REMEDY = "save it again with np.savez"


class _Array(NamedTuple):
    """How an array is stored in the file."""

    name: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def channels_last(self) -> bool:
        """For images: whether the shape is (n, H, W, C) and not (n, C, H, W), which wins if both may be."""
        return len(self.shape) == 4 and self.shape[1] not in _CHANNELS and self.shape[3] in _CHANNELS

    @property
    def image_shape(self) -> ImageShape:
        """For images: channels, height, width."""
        a, b, c = (1, *self.shape[1:])[-3:]
        return (c, a, b) if self.channels_last else (a, b, c)


def read_npz(path: str | Path) -> tuple[Pixels, NDArray[Any]]:
    """The training samples of an `.npz`: images uint8 (n, C, H, W) and labels (n,) as stored."""
    path = Path(path)
    with reading(path, _REMEDY):
        x, y = _part_names(path)["train"]
        labels = _labels(path, y)
        return _read_images(path, x, len(labels)), labels


def read_npz_images(path: str | Path) -> Pixels:
    """The images of an `.npz`, labelled or not: its array x, x_test or the only one; uint8 (n, C, H, W)."""
    path = Path(path)
    with reading(path, _REMEDY):
        names = _names(path)
        known = [name for name in ("x", "x_test") if name in names]
        if not known and len(names) != 1:
            raise BadInput(f"{path} holds {_listed(names)} but no x; {_REMEDY}")
        return _read_images(path, (known or names)[0], None)


def load_npz(path: Path, progress: Progress) -> Decoded:
    """The arrays of an `.npz` as images uint8 (n, C, H, W) and class indices; cached."""
    with reading(path, _REMEDY):
        return cached(name_of(path), fingerprint([path]), lambda: _plan(path, progress))


def _plan(path: Path, progress: Progress) -> Blueprint:
    names = _part_names(path)
    labels = {part: _labels(path, y) for part, (_, y) in names.items()}
    images = {part: _images(path, x, len(labels[part])) for part, (x, _) in names.items()}
    if len({array.image_shape for array in images.values()}) > 1:
        raise BadInput(f"{path}: x_train and x_test have images of different shapes; make them equal")
    if len({values.dtype.kind == "U" for values in labels.values()}) > 1:
        raise BadInput(f"{path}: one of y_train and y_test has integers, the other strings; make them alike")
    classes = class_sorted((str(label) for label in np.unique(labels["train"])), path)
    if unknown := {str(label) for label in np.unique(labels.get("test", []))} - set(classes):
        raise BadInput(f"{path}: label {min(unknown)} of y_test is not in y_train; remove those samples")

    def fill(parts: Mapping[str, Task]) -> None:
        for part, out in parts.items():
            _fill(path, images[part], out.x, progress)
            out.y[:] = class_indices(labels[part].tolist(), classes)

    sizes = {part: len(values) for part, values in labels.items()}
    return Blueprint(classes, images["train"].image_shape, sizes, fill)


def _part_names(path: Path) -> dict[str, tuple[str, str]]:
    """Part → names of its images and labels."""
    names = _names(path)
    if {"x_train", "y_train", "x_test", "y_test"} <= set(names):
        return {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}
    if {"x", "y"} <= set(names):
        return {"train": ("x", "y")}
    raise BadInput(f"{path} holds {_listed(names)}; save x and y, or x_train, y_train, x_test and y_test")


def _names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return sorted({name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")})


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20])[:200] or "nothing"


@contextmanager
def _opened(path: Path, name: str) -> Iterator[tuple[_Array, IO[bytes]]]:
    """An array, its header checked against the size of the file, and the file at its first value."""
    where = f"{path}: array {name}"
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        # Other methods can expand a few bytes to any size before the first read returns.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{where} uses an unsupported compression; {_REMEDY}")
        with archive.open(member) as file:
            array = _Array(name, *_read_header(file))
            if array.dtype.hasobject:
                raise BadInput(
                    f"{where} holds Python objects, which are never loaded because they can run code; save "
                    "numbers or strings of one type"
                )
            # In Python True is an integer, but it is not a valid side.
            if any(type(side) is not int or side < 0 for side in array.shape) or array.dtype.itemsize < 1:
                raise DataError(f"{where} has an invalid shape or type; {_REMEDY}")
            values, size = math.prod(array.shape), path.stat().st_size
            if values * array.dtype.itemsize > min(member.file_size, _LARGEST_RATIO * size):
                raise DataError(f"{where} is truncated; {_REMEDY}")
            if values > max(_MOST, _PER_BYTE * size):
                raise DataError(
                    f"{where} expands to far more bytes than the file has; save it as uint8 without "
                    "compression"
                )
            yield array, file


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and type; leaves `file` at the first value."""
    form = np.lib.format
    is_first = form.read_magic(file) == (1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd literals in the header
        return form.read_array_header_1_0(file) if is_first else form.read_array_header_2_0(file)


def _values(file: IO[bytes], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The next `count` values of an array."""
    content = file.read(count * dtype.itemsize)
    if len(content) != count * dtype.itemsize:
        raise EOFError("an array ends early")
    return np.frombuffer(content, dtype)


def _labels(path: Path, name: str) -> NDArray[Any]:
    with _opened(path, name) as (array, file):
        _, shape, _, dtype = array
        if len(shape) not in (1, 2) or shape[1:] not in ((), (1,)) or shape[0] < 1:
            raise BadInput(f"{path}: {name} has shape {shape}; save one label per sample, shape (n,)")
        if dtype.kind not in "iuUS":
            raise BadInput(f"{path}: {name} has type {dtype}; save integers or strings")
        size = shape[0] * dtype.itemsize * (4 if dtype.kind == "S" else 1)
        if size > max(_MOST_LABELS, _LABELS_PER_BYTE * path.stat().st_size):
            raise BadInput(
                f"{path}: {name} takes {size:,} bytes, because each label takes the room of the longest; "
                "shorten the longest, or save integers"
            )
        labels = _values(file, shape[0], dtype)
    if dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    if dtype.kind == "U":
        labels = labels.astype(dtype.newbyteorder("="), copy=False)
        if labels.view(np.uint32).max() > sys.maxunicode:
            raise BadInput(f"{path}: {name} has strings that are not valid text; save them again")
    if dtype.kind in "US" and np.char.str_len(labels).max() > LONGEST_LABEL:
        raise BadInput(f"{path}: {name} has labels of more than {LONGEST_LABEL} characters; shorten them")
    return labels


def _images(path: Path, name: str, samples: int | None) -> _Array:
    """An array of images that has a valid type and shape and, if given, as many images as `samples`."""
    with _opened(path, name) as (array, _):
        shape = array.shape
    if array.dtype.kind not in "uif":
        raise BadInput(
            f"{path}: {name} has type {array.dtype}; save integers in 0 to 255 or floats in [0, 1]"
        )
    if len(shape) not in (3, 4) or array.image_shape[0] not in _CHANNELS or min(shape) < 1:
        raise BadInput(
            f"{path}: {name} has shape {shape}; save images as (n, height, width), or as "
            "(n, channels, height, width) or (n, height, width, channels) with 1, 3 or 4 channels"
        )
    if samples is not None and shape[0] != samples:
        raise BadInput(f"{path}: {name} has {shape[0]} images for {samples} labels; save as many of each")
    return array


def _read_images(path: Path, name: str, samples: int | None) -> Pixels:
    array = _images(path, name, samples)
    images = np.empty((array.shape[0], *array.image_shape), np.uint8)
    _fill(path, array, images, _SILENT)
    return images


def _fill(path: Path, array: _Array, out: Pixels, progress: Progress) -> None:
    """Read images into `out` (n, C, H, W) block by block, in the order in which the file has their values."""
    images = out.transpose(0, 2, 3, 1) if array.channels_last else out.reshape(array.shape)
    view = images.T if array.fortran else images
    with progress.track(f"reading {array.name}", out.size) as advance, _opened(path, array.name) as (_, file):
        for block in _blocks(view, max(1, _BLOCK_BYTES // array.dtype.itemsize)):
            values = _values(file, block.size, array.dtype).reshape(block.shape)
            try:
                block[...] = to_uint8(values)
            except BadInput as error:
                raise BadInput(f"{path}: in {array.name}, {error}") from error
            advance(block.size)


def _blocks(view: NDArray[Any], most: int) -> Iterator[NDArray[Any]]:
    """Consecutive parts of an array, in C order, of at most `most` values each."""
    rows = most // max(math.prod(view.shape[1:]), 1)
    if rows:
        yield from (view[start : start + rows] for start in range(0, len(view), rows))
        return
    for row in view:
        yield from _blocks(row, most)
