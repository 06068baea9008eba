"""Folders of image files: which files count, which shape they get, reading them in one go."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logcl.core.errors import DataError, PassedOver
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageShape
from logcl.streams.pixels import check_image_shape, read_header, read_image
from logcl.streams.stream import Pixels

__all__ = [
    "FolderImages",
    "class_sorted",
    "has_images",
    "infer_image_shape",
    "list_images",
    "natural_key",
    "read_folder",
    "read_image",
    "visible_folders",
]

# Also endings that Pillow may not read: such a file is reported, not passed over in silence.
_ENDINGS = frozenset(
    [
        ".png",
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".bmp",
        ".dib",
        ".gif",
        ".tif",
        ".tiff",
        ".webp",
        ".ppm",
        ".pgm",
        ".pbm",
        ".pnm",
        ".jp2",
        ".j2k",
        ".heic",
        ".heif",
        ".avif",
    ]
)
_LARGEST_SIDE = 64
_DEFAULT_SIDE = 32
_SILENT = Silent()


class FolderImages(NamedTuple):
    """What a folder held."""

    x: Pixels
    """(n, C, H, W)"""
    y: NDArray[np.str_]
    """(n,) class names"""
    skipped: list[tuple[Path, str]]
    """Files left out, and why."""


def natural_key(name: str) -> tuple[object, ...]:
    """Sorts task2 before task10."""
    pieces = re.split(r"(\d+)", name)
    # Pieces at odd places are all digits. The name itself decides between 1 and 01.
    return (*((int(p), "") if k % 2 else (0, p) for k, p in enumerate(pieces)), (0, name))


def class_sorted(names: Iterable[str]) -> tuple[str, ...]:
    """Class names in sorted order; by value where all of them are whole numbers."""
    unique = sorted(set(names))
    if all(re.fullmatch(r"-?[0-9]+", name) for name in unique):
        unique.sort(key=int)
    return tuple(unique)


def is_image(path: Path) -> bool:
    """Whether a path is a visible file with an image's ending; what is in it is not looked at."""
    return path.suffix.lower() in _ENDINGS and not path.name.startswith(".") and path.is_file()


def has_images(folder: Path) -> bool:
    """Whether images lie directly in a folder."""
    return any(is_image(path) for path in folder.iterdir())


def visible_folders(folder: Path) -> list[Path]:
    """The sub-folders that are not hidden, in natural order."""
    folders = (p for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__MACOSX")))
    return sorted(folders, key=lambda p: natural_key(p.name))


def list_all_images(folder: Path) -> list[Path]:
    """Every image below a folder, however deep, in natural order of their paths."""
    found = [path for path in folder.rglob("*") if is_image(path)]
    if not found:
        raise DataError(f"{folder}: holds no images.")
    return sorted(found, key=lambda path: natural_key(str(path)))


def list_images(folder: str | Path) -> dict[str, list[Path]]:
    """The images of a folder of class-named folders: {class name: its files}, both in order.

    Hidden files and files with other endings are passed over. Images outside class folders, and class
    folders without images, are errors: most likely somebody meant something else.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(
            f"{folder}: is not a folder; give a folder that holds one folder of images per class."
        )
    try:
        stray = next((p for p in sorted(folder.iterdir()) if is_image(p)), None)
        folders = {p.name: p for p in visible_folders(folder)}
        if stray is not None:
            raise DataError(f"{stray}: lies in no class folder; move it into a folder named after its class.")
        if not folders:
            raise DataError(f"{folder}: is empty; put images into folders named after their classes.")
        found = {}
        for name in class_sorted(folders):
            files = [p for p in folders[name].iterdir() if is_image(p)]
            if not files:
                inner = visible_folders(folders[name])
                if any(p.suffix.lower() in _ENDINGS and p.is_symlink() for p in folders[name].iterdir()):
                    raise DataError(
                        f"{folders[name]}: holds only links that lead nowhere; mend or remove it."
                    )
                hint = f"give {folders[name]} itself" if inner else "put images into it or remove it"
                raise DataError(f"{folders[name]}: holds no images and so is no class folder; {hint}.")
            found[name] = sorted(files, key=lambda p: natural_key(p.name))
    except OSError as error:
        raise DataError(f"{error.filename or folder}: cannot be read ({error.strerror}).") from error
    return found


def warn_of_passed_over(folder: str | Path, taken: Iterable[Path]) -> None:
    """Say in one sentence how many images below `folder` are not among those `taken`, and why."""
    known = set(map(str, taken))
    nested = dangling = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        for name in names:
            path = Path(place, name)
            if name.startswith(".") or str(path) in known:
                continue
            image = path.suffix.lower() in _ENDINGS
            if (image or not path.suffix) and not path.exists():
                dangling += 1  # of images or of whole folders of them
            elif image:
                nested += 1
    where = f"{nested:,} in sub-folders of class folders, " * bool(nested)
    where += f"{dangling:,} behind links that lead nowhere, " * bool(dangling)
    if where:
        warnings.warn(
            f"{folder}: images were passed over: {where.removesuffix(', ')}.", PassedOver, stacklevel=2
        )


def infer_image_shape(paths: Sequence[Path]) -> ImageShape:
    """One channel if all images are grey, else three; their common size if it is at most 64, else 32x32.

    Reads headers only.
    """
    if not paths:
        raise DataError("There are no images to infer an image shape from.")
    return _common_shape({read_header(path) for path in paths})


def _common_shape(headers: set[tuple[bool, tuple[int, int]]]) -> ImageShape:
    channels = 1 if all(grey for grey, _ in headers) else 3
    sizes = {size for _, size in headers}
    height, width = sizes.pop() if len(sizes) == 1 else (_DEFAULT_SIDE, _DEFAULT_SIDE)
    if max(height, width) > _LARGEST_SIDE:
        height = width = _DEFAULT_SIDE
    return channels, height, width


def fill_images(paths: Sequence[Path], out: Pixels, progress: Progress) -> None:
    """Read so many files into the rows of `out` (n, C, H, W)."""
    _, *shape = out.shape
    with progress.track("reading images", len(paths)) as advance:
        for row, path in enumerate(paths):
            out[row] = read_image(path, (shape[0], shape[1], shape[2]))
            advance()


def read_folder(
    folder: str | Path,
    image_shape: ImageShape | None = None,
    *,
    skip_bad: bool = False,
    progress: Progress = _SILENT,
) -> FolderImages:
    """Read a folder of class-named folders of images, of any size and mode, as one array.

    `image_shape` (C, H, W) is inferred from the readable images when it is None. With `skip_bad`, files that
    cannot be read are left out and returned with the reason; otherwise the first one is an error.
    """
    files = [(path, name) for name, paths in list_images(folder).items() for path in paths]
    warn_of_passed_over(folder, (path for path, _ in files))
    skipped: list[tuple[Path, str]] = []

    def keep_or_skip(path: Path, error: DataError) -> None:
        if not skip_bad:
            raise DataError(
                f"{str(error).removesuffix('.')}, or go on without it with --skip-bad."
            ) from error
        skipped.append((path, str(error).removeprefix(f"{path}: ")))

    if image_shape is None:
        readable, headers = [], set()
        for path, name in files:
            try:
                headers.add(read_header(path))
                readable.append((path, name))
            except DataError as error:
                keep_or_skip(path, error)
        files = readable
        _refuse_none_left(folder, files)
        image_shape = _common_shape(headers)
    check_image_shape(image_shape)
    try:
        x = np.empty((len(files), *image_shape), np.uint8)
    except MemoryError as error:
        channels, height, width = image_shape
        raise DataError(
            f"{folder}: {len(files):,} images of {channels}x{height}x{width} do not fit into memory; "
            "absorb fewer at a time."
        ) from error
    labels: list[str] = []
    with progress.track("reading images", len(files)) as advance:
        for path, name in files:
            try:
                x[len(labels)] = read_image(path, image_shape)
                labels.append(name)
            except DataError as error:
                keep_or_skip(path, error)
            advance()
    _refuse_none_left(folder, labels)
    return FolderImages(x[: len(labels)], np.array(labels), skipped)


def _refuse_none_left(folder: str | Path, kept: Sequence[object]) -> None:
    if not kept:
        raise DataError(f"{folder}: not one of its images can be read; replace them.")
