"""`.npz` files: x, y or x_train, y_train, x_test, y_test; read in pieces, never unpickled."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from logcl.errors import BadInput, DataError
from logcl.inputs import to_uint8
from logcl.progress import Progress, Silent
from logcl.settings import ImageShape
from logcl.streams.archives import reading
from logcl.streams.cache import Blueprint, Decoded, Part, cached, fingerprint, name_of
from logcl.streams.images import class_sorted
from logcl.streams.stream import Classes, Pixels

_PIECE_BYTES = 1 << 23
_CHANNELS = (1, 3, 4)
_LARGEST_RATIO = 1100  # deflate cannot pack tighter: whoever claims more lies
_SILENT = Silent()
_REMEDY = "save it again with np.savez"


@dataclass(frozen=True)
class _Layout:
    """How an array of images lies in the file."""

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
    """The training samples of an `.npz`: images uint8 (n, C, H, W), and labels (n,) as they are there."""
    path = Path(path)
    with reading(path, _REMEDY):
        train, _ = _part_names(path)
        labels = _labels(path, train[1])
        layout = _layout(path, train[0], len(labels))
        images = np.empty((len(labels), *layout.image_shape), np.uint8)
        _fill(path, layout, images, _SILENT)
    return images, labels


def read_npz_images(path: str | Path) -> Pixels:
    """The images of an `.npz`, labelled or not: its array x, x_test or only one; uint8 (n, C, H, W)."""
    path = Path(path)
    with reading(path, _REMEDY):
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        name = next(
            (name for name in ("x", "x_test") if name in names), names[0] if len(names) == 1 else None
        )
        if name is None:
            raise BadInput(f"{path}: must hold images as x, but holds {', '.join(names) or 'nothing'}.")
        layout = _layout(path, name, None)
        images = np.empty((layout.shape[0], *layout.image_shape), np.uint8)
        _fill(path, layout, images, _SILENT)
    return images


def load_npz(path: Path, progress: Progress) -> Decoded:
    """The arrays of an `.npz` as uint8 (n, C, H, W) and class indices; cached."""

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
        raise BadInput(f"{path}: x_train and x_test hold images of different shapes; make them equal.")
    if test and (labels["test"].dtype.kind == "U") != (labels["train"].dtype.kind == "U"):
        raise BadInput(f"{path}: y_train and y_test must both hold whole numbers or both strings.")
    classes = class_sorted(str(label) for label in np.unique(labels["train"]))
    if test and (unknown := set(map(str, np.unique(labels["test"]))) - set(classes)):
        raise BadInput(
            f"{path}: y_test has the label {min(unknown)}, which y_train lacks; remove those samples."
        )

    def fill(parts: Mapping[str, Part]) -> None:
        with reading(path, _REMEDY):
            for part, out in parts.items():
                _fill(path, layouts[part], out.x, progress)
                out.y[:] = _positions(labels[part], classes)

    return Blueprint(classes, shape, {part: len(values) for part, values in labels.items()}, fill)


def _part_names(path: Path) -> tuple[tuple[str, str], tuple[str, str] | None]:
    with zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
    if {"x_train", "y_train", "x_test", "y_test"} <= names:
        return ("x_train", "y_train"), ("x_test", "y_test")
    if {"x", "y"} <= names:
        return ("x", "y"), None
    held = ", ".join(sorted(names)) or "nothing"
    raise BadInput(f"{path}: must hold x and y, or x_train, y_train, x_test and y_test, but holds {held}.")


def _header(path: Path, name: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and type of an array; `file` is then at its first value."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
    except ValueError as error:
        raise DataError(f"{path}: its array {name} is damaged ({error}); {_REMEDY}.") from error
    if dtype.hasobject:
        raise BadInput(
            f"{path}: its array {name} holds Python objects, which are never loaded because they can run "
            "code; save plain numbers or strings of one type."
        )
    return shape, fortran, dtype


def _labels(path: Path, name: str) -> NDArray[Any]:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        shape, _, dtype = _header(path, name, file)
        size = archive.getinfo(f"{name}.npy").file_size
    if len(shape) == 2 and shape[1] == 1:
        shape = shape[:1]
    if len(shape) != 1 or shape[0] < 1:
        raise BadInput(f"{path}: {name} must hold one label a sample, shape (n,), not {shape}.")
    if dtype.kind not in "iuUS":
        raise BadInput(f"{path}: {name} must hold whole numbers or strings, not {dtype}.")
    if size < math.prod(shape) * dtype.itemsize:
        raise DataError(f"{path}: its array {name} is truncated; {_REMEDY}.")
    with np.load(path, allow_pickle=False) as archive:
        labels: NDArray[Any] = archive[name].reshape(-1)
    if dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{path}: {name} holds byte strings that are not UTF-8; save them as str."
            ) from error
    return labels


def _positions(labels: NDArray[Any], classes: tuple[str, ...]) -> Classes:
    index = {name: position for position, name in enumerate(classes)}
    values, inverse = np.unique(labels, return_inverse=True)
    return np.array([index[str(value)] for value in values], np.int64)[inverse.reshape(-1)]


def _layout(path: Path, name: str, samples: int | None) -> _Layout:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        shape, fortran, dtype = _header(path, name, file)
        size = archive.getinfo(f"{name}.npy").file_size
    if dtype.kind not in "uif":
        raise BadInput(
            f"{path}: {name} is {dtype}; images must be integers from 0 to 255, or floats from 0 to 1."
        )
    last = len(shape) == 4 and shape[1] not in _CHANNELS and shape[3] in _CHANNELS
    grey = len(shape) == 3
    if not (grey or last or (len(shape) == 4 and shape[1] in _CHANNELS)) or min(shape) < 1:
        raise BadInput(
            f"{path}: {name} has the shape {shape}; images are (n, height, width), or "
            "(n, channels, height, width) or (n, height, width, channels) with 1, 3 or 4 channels."
        )
    if samples is not None and shape[0] != samples:
        raise BadInput(f"{path}: {name} holds {shape[0]} images but there are {samples} labels.")
    claimed = math.prod(shape) * dtype.itemsize
    if size < claimed or claimed > _LARGEST_RATIO * path.stat().st_size:
        raise DataError(f"{path}: its array {name} is truncated; {_REMEDY}.")
    return _Layout(name, shape, dtype, fortran, last)


def _fill(path: Path, layout: _Layout, out: Pixels, progress: Progress) -> None:
    """Read images into `out` (n, C, H, W) a piece at a time."""
    start = 0
    with progress.track(f"reading {layout.name}", len(out)) as advance:
        for piece in _pieces(path, layout):
            try:
                values = to_uint8(piece)
            except BadInput as error:
                raise BadInput(f"{path}: in its array {layout.name}, {error}") from error
            rows = out[start : start + len(values)]
            rows[:] = values.transpose(0, 3, 1, 2) if layout.channels_last else values.reshape(rows.shape)
            start += len(values)
            advance(len(values))


def _pieces(path: Path, layout: _Layout) -> Iterator[NDArray[Any]]:
    if layout.fortran:  # samples are interleaved: there is no reading it in pieces
        with np.load(path, allow_pickle=False) as archive:
            yield archive[layout.name]
        return
    row_bytes = math.prod(layout.shape[1:]) * layout.dtype.itemsize
    rows_at_once = max(1, _PIECE_BYTES // row_bytes)
    with zipfile.ZipFile(path) as archive, archive.open(f"{layout.name}.npy") as file:
        _header(path, layout.name, file)
        for start in range(0, layout.shape[0], rows_at_once):
            rows = min(rows_at_once, layout.shape[0] - start)
            content = file.read(rows * row_bytes)
            if len(content) != rows * row_bytes:
                raise EOFError(f"{layout.name} ends early")
            yield np.frombuffer(content, layout.dtype).reshape(rows, *layout.shape[1:])
