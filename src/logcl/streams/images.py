"""Folders of image files: which files count, which shape they get, and reading a folder as one task."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from logcl.core.errors import DataError, PassedOver
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageShape
from logcl.streams.pixels import check_image_shape, read_header, read_image
from logcl.streams.stream import Pixels, Task

# Including suffixes that Pillow may not read: such a file is reported instead of silently ignored.
_SUFFIXES = {
    ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp", ".ppm",
    ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".heic", ".heif", ".avif",
}  # fmt: skip
_LARGEST_SIDE = 64
_DEFAULT_SIDE = 32
_SILENT = Silent()


def natural_key(name: str) -> tuple[object, ...]:
    """Sort key that puts task2 before task10."""
    pieces = re.split(r"(\d+)", name)
    # Pieces at odd positions are all digits. The name itself breaks ties such as 1 and 01.
    return (*((int(p), "") if k % 2 else (0, p) for k, p in enumerate(pieces)), (0, name))


def class_sorted(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct class names, sorted; by value if all of them are integers."""
    unique = sorted(set(names))
    if all(re.fullmatch(r"-?[0-9]+", name) for name in unique):
        unique.sort(key=int)
    return tuple(unique)


def is_image(path: Path) -> bool:
    """Whether a path is a file, not hidden, with an image suffix; its content is not read."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".") and path.is_file()


def has_images(folder: Path) -> bool:
    """Whether a folder itself holds images."""
    return any(is_image(path) for path in folder.iterdir())


def visible_folders(folder: Path) -> list[Path]:
    """The sub-folders that are not hidden, in natural order."""
    folders = (p for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__MACOSX")))
    return sorted(folders, key=lambda p: natural_key(p.name))


def list_all_images(folder: Path) -> list[Path]:
    """All images below a folder, at any depth, in natural order of their paths."""
    found = [path for path in folder.rglob("*") if is_image(path)]
    if not found:
        raise DataError(f"{folder} holds no images; give a folder that does")
    return sorted(found, key=lambda path: natural_key(str(path)))


def list_images(folder: str | Path) -> dict[str, list[Path]]:
    """The image files of a folder of class-named folders, by class; classes sorted, files in natural order.

    Hidden files and files with other suffixes are ignored. Images outside class folders and class folders
    without images are errors, because they are most likely mistakes.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give a folder with one folder of images per class")
    try:
        stray = next((p for p in sorted(folder.iterdir()) if is_image(p)), None)
        if stray is not None:
            raise DataError(f"{stray} is not in a class folder; move it into a folder named after its class")
        folders = {p.name: p for p in visible_folders(folder)}
        if not folders:
            raise DataError(f"{folder} has no class folders; put images into folders named after their class")
        found = {}
        for name in class_sorted(folders):
            files = [p for p in folders[name].iterdir() if is_image(p)]
            if not files:
                raise _no_images(folders[name])
            found[name] = sorted(files, key=lambda p: natural_key(p.name))
    except OSError as error:
        raise DataError(
            f"{error.filename or folder} cannot be read ({error.strerror}); check its permissions"
        ) from error
    return found


def _no_images(folder: Path) -> DataError:
    if any(p.suffix.lower() in _SUFFIXES and p.is_symlink() for p in folder.iterdir()):
        return DataError(f"{folder} holds only broken links; fix or remove them")
    inner = visible_folders(folder)
    hint = f"give {folder} itself" if inner else "put images into it or remove it"
    return DataError(f"{folder} holds no images, so it is not a class folder; {hint}")


def warn_of_ignored(folder: str | Path, taken: Iterable[Path]) -> None:
    """Warn in one sentence how many images below `folder` are not among those `taken`, and why."""
    known = set(map(str, taken))
    nested = dangling = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        for name in names:
            path = Path(place, name)
            if name.startswith(".") or str(path) in known:
                continue
            image = path.suffix.lower() in _SUFFIXES
            if (image or not path.suffix) and not path.exists():
                dangling += 1  # a link to an image, or to a whole folder
            elif image:
                nested += 1
    reasons = [f"{nested:,} in sub-folders of class folders"] * bool(nested)
    reasons += [f"{dangling:,} behind broken links"] * bool(dangling)
    if reasons:
        warnings.warn(f"{folder}: images ignored: {', '.join(reasons)}", PassedOver, stacklevel=2)


def infer_image_shape(paths: Sequence[Path], *, skip_bad: bool = False) -> ImageShape:
    """One channel if all images are grey, else three; their common size if it is at most 64, else 32x32.

    Reads headers only. With `skip_bad`, unreadable files do not count.
    """
    headers = set()
    for path in paths:
        try:
            headers.add(read_header(path))
        except DataError:
            if not skip_bad:
                raise
    channels = 1 if all(grey for grey, _ in headers) else 3
    sizes = {size for _, size in headers}
    height, width = sizes.pop() if len(sizes) == 1 else (_DEFAULT_SIDE, _DEFAULT_SIDE)
    if max(height, width) > _LARGEST_SIDE:
        height = width = _DEFAULT_SIDE
    return channels, height, width


def fill_images(
    paths: Sequence[Path], out: Pixels, progress: Progress, *, skip_bad: bool = False
) -> dict[int, str]:
    """Decode files into the first rows of `out` (n, C, H, W).

    Returns the positions of files skipped because they cannot be read, with the reasons; without `skip_bad`
    the first such file is an error.
    """
    channels, height, width = out.shape[1:]
    skipped: dict[int, str] = {}
    with progress.track("reading images", len(paths)) as advance:
        for position, path in enumerate(paths):
            try:
                out[position - len(skipped)] = read_image(path, (channels, height, width))
            except DataError as error:
                if not skip_bad:
                    raise
                skipped[position] = str(error).removeprefix(f"{path} ").removeprefix("is ")
            advance()
    return skipped


def read_folder(
    folder: str | Path,
    image_shape: ImageShape | None = None,
    *,
    skip_bad: bool = False,
    progress: Progress = _SILENT,
) -> Task:
    """Read a folder of class-named folders of images, of any size and mode, as one task with class names.

    `image_shape` (C, H, W) is inferred from the readable images if it is None. With `skip_bad`, unreadable
    files are left out and listed in the task; otherwise the first one is an error.
    """
    by_class = list_images(folder)
    paths = [path for files in by_class.values() for path in files]
    labels = np.repeat(list(by_class), [len(files) for files in by_class.values()])
    warn_of_ignored(folder, paths)
    try:
        image_shape = image_shape or infer_image_shape(paths, skip_bad=skip_bad)
        check_image_shape(image_shape)
        x = np.empty((len(paths), *image_shape), np.uint8)
        skipped = fill_images(paths, x, progress, skip_bad=skip_bad)
    except MemoryError as error:
        size = "x".join(map(str, image_shape or ()))
        raise DataError(
            f"{folder}: {len(paths):,} images of {size} do not fit into memory; absorb fewer at a time"
        ) from error
    except DataError as error:
        hint = "" if skip_bad else ", or skip such files with --skip-bad"
        raise DataError(f"{error}{hint}") from error
    if len(skipped) == len(paths):
        raise DataError(f"{folder}: none of its images can be read; replace them")
    bad = list(skipped)
    return Task(
        x[: len(paths) - len(bad)],
        np.delete(labels, bad),
        str(folder),
        tuple((paths[position], reason) for position, reason in skipped.items()),
    )
