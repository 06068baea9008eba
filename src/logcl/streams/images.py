"""Folders of image files: which files count, which shape they get, and reading them as tasks or streams.

A folder has class-named folders of images, or task folders of those, or `train` and `test` with either.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np

from logcl.core.errors import DataError, PassedOver
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageFit, ImageShape
from logcl.core.sizes import AskedShape, ImageSize, parse_size, shape_text
from logcl.core.text import printable
from logcl.streams.archives import reading
from logcl.streams.cache import Blueprint, Decoded, cached, fingerprint, name_of
from logcl.streams.pixels import check_fit, check_image_shape, read_image
from logcl.streams.stream import Classes, Pixels, Task, class_indices, class_sorted
from logcl.streams.survey import Survey, survey

# Including suffixes that Pillow may not read: such a file is reported instead of silently ignored.
_SUFFIXES = {
    ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp", ".ppm",
    ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".heic", ".heif", ".avif",
}  # fmt: skip
_AT_ONCE = 64  # images in memory together on their way through a network
_HIDDEN = (".", "__MACOSX")
_SILENT = Silent()


def natural_key(name: str) -> tuple[object, ...]:
    """Sort key that puts task2 before task10."""
    pieces = re.split(r"(\d+)", name)
    # Pieces at odd positions are all digits. The name itself breaks ties such as 1 and 01.
    return (*((int(p), "") if k % 2 else (0, p) for k, p in enumerate(pieces)), (0, name))


def _is_image(path: Path) -> bool:
    """Whether a path is a file, not hidden, with an image suffix; its content is not read."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".") and path.is_file()


def _has_images(folder: Path) -> bool:
    return any(map(_is_image, folder.iterdir()))


def _images_in(folder: Path) -> list[Path]:
    """The images directly in a folder, in natural order."""
    return sorted(filter(_is_image, folder.iterdir()), key=lambda path: natural_key(path.name))


def _folders_in(folder: Path) -> list[Path]:
    """The sub-folders that are not hidden, in natural order."""
    folders = (p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(_HIDDEN))
    return sorted(folders, key=lambda p: natural_key(p.name))


def list_all_images(folder: Path) -> list[Path]:
    """All images below a folder, at any depth, in natural order of their paths."""
    found = [path for path in folder.rglob("*") if _is_image(path)]
    if not found:
        raise DataError(f"{folder} holds no images; give a folder that does")
    return sorted(found, key=lambda path: natural_key(str(path)))


def list_images(folder: Path) -> list[Path]:
    """The image files of a folder of class-named folders; classes sorted, files in natural order.

    Hidden files and files with other suffixes are ignored. Images outside class folders and class folders
    without images are errors, because they are most likely mistakes.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give a folder with one folder of images per class")
    with reading(folder):
        if stray := _images_in(folder):
            raise DataError(f"{stray[0]} is not in a class folder; move it to a folder named after its class")
        folders = {path.name: path for path in _folders_in(folder)}
        if not folders:
            raise DataError(f"{folder} has no class folders; put images into folders named after their class")
        found = {name: _images_in(folders[name]) for name in class_sorted(folders, folder)}
        for name, images in found.items():
            if not images:
                raise _no_images(folders[name])
    return [path for images in found.values() for path in images]


def _no_images(folder: Path) -> DataError:
    if any(p.suffix.lower() in _SUFFIXES and p.is_symlink() for p in folder.iterdir()):
        return DataError(f"{folder} holds only broken links; fix or remove them")
    hint = f"give {folder} itself" if _folders_in(folder) else "put images into it or remove it"
    return DataError(f"{folder} holds no images, so it is not a class folder; {hint}")


def _warn_of_ignored(folder: Path, taken: Iterable[Path]) -> None:
    """Warn in one sentence how many images below `folder` are not among those `taken`, and why."""
    known = set(map(str, taken))
    nested = dangling = special = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        for path in (Path(place, name) for name in names):
            image = path.suffix.lower() in _SUFFIXES
            if path.name.startswith(".") or str(path) in known:
                continue
            if (image or not path.suffix) and not path.exists():
                dangling += 1  # a link to an image, or to a whole folder
            elif image and path.is_file():
                nested += 1
            elif image:
                special += 1  # a pipe, socket or device; reading one could block
    reasons = [f"{nested:,} in sub-folders of class folders"] * bool(nested)
    reasons += [f"{dangling:,} behind broken links"] * bool(dangling)
    reasons += [f"{special:,} not regular files"] * bool(special)
    if reasons:
        warnings.warn(f"{printable(folder)}: images ignored: {', '.join(reasons)}", PassedOver, stacklevel=2)


@contextmanager
def naming_skip_bad(skip_bad: bool) -> Iterator[None]:
    """Errors about files that cannot be read say that they could be skipped."""
    try:
        yield
    except DataError as error:
        hint = "" if skip_bad else ", or skip such files with --skip-bad"
        raise DataError(f"{error}{hint}") from error


def survey_source(
    folder: Path, first: int = 1, *, skip_bad: bool = False, progress: Progress = _SILENT
) -> Survey:
    """The headers of all images to train on, in task folders from number `first`; see `survey`."""
    paths = [path for part in task_folders(folder)[first - 1 :] for path in list_images(part)]
    with naming_skip_bad(skip_bad):
        return survey(paths, skip_bad=skip_bad, progress=progress)


def checked_size(image_shape: AskedShape) -> ImageSize:
    """The size that was asked for; images in files have 1 or 3 channels."""
    size = parse_size(image_shape)
    check_image_shape(size.shape())
    return size


def decided(asked: AskedShape | None, headers: Callable[[], Survey]) -> ImageShape:
    """The shape of images: as asked, and decided by their headers, which are only read if they are needed."""
    size = None if asked is None else checked_size(asked)
    return size.shape() if size and size.channels else headers().image_shape(size)


def fill_images(
    paths: Sequence[Path], out: Pixels, fit: ImageFit, progress: Progress, *, skip_bad: bool = False
) -> dict[int, str]:
    """Decode files into the first rows of `out` (n, C, H, W).

    Returns the positions of files skipped because they cannot be read, with the reasons; without `skip_bad`
    the first such file is an error.
    """
    channels, height, width = out.shape[1:]
    skipped: dict[int, str] = {}
    done = 0
    with progress.track("reading images", len(paths)) as advance:
        for image in _decoded(paths, (channels, height, width), fit, skipped, skip_bad=skip_bad):
            out[done] = image
            done += 1
            advance()
        advance(len(skipped))
    return skipped


def _decoded(
    paths: Sequence[Path], shape: ImageShape, fit: ImageFit, skipped: dict[int, str], *, skip_bad: bool
) -> Iterator[Pixels]:
    """Yield the images of files; positions of those that are `skipped`, and why, are added to it."""
    for position, path in enumerate(paths):
        try:
            image = read_image(path, shape, fit)
        except DataError as error:
            if not skip_bad:
                raise
            skipped[position] = str(error).removeprefix(f"{printable(path)} ").removeprefix("is ")
        else:
            yield image


def _mapped(
    paths: Sequence[Path],
    shape: ImageShape,
    fit: ImageFit,
    through: Callable[[Pixels], Pixels],
    progress: Progress,
    *,
    skip_bad: bool,
) -> tuple[Pixels, dict[int, str]]:
    """What `through` makes of the images, some at a time: they need not fit into memory together."""
    skipped: dict[int, str] = {}
    images = _decoded(paths, shape, fit, skipped, skip_bad=skip_bad)
    parts = []
    with progress.track("reading images", len(paths)) as advance:
        began, done = time.monotonic(), 0
        while block := list(islice(images, _AT_ONCE)):
            parts.append(through(np.stack(block)))
            done += len(block)
            advance(len(block), note=f"{done / (time.monotonic() - began):.0f} images per second")
        advance(len(skipped))
    return np.concatenate(parts) if parts else np.empty((0, *shape), np.uint8), skipped


def read_folder(
    folder: str | Path,
    image_shape: AskedShape | None = None,
    *,
    fit: ImageFit = "crop",
    skip_bad: bool = False,
    through: Callable[[Pixels], Pixels] | None = None,
    progress: Progress = _SILENT,
) -> Task:
    """Read a folder of class-named folders of images, of any size and mode, as one task with class names.

    `image_shape` is any size, e.g. 64 or (3, 64, 64); what it leaves open is decided by the readable images,
    see `Survey.image_shape`, and `fit` by what happens to images of another aspect ratio. With `skip_bad`,
    unreadable files are left out and listed in the task; otherwise the first one is an error. `through`: what
    becomes of the images, some at a time, e.g. features.
    """
    paths = list_images(Path(folder))
    _warn_of_ignored(Path(folder), paths)
    check_fit(fit)
    shape = None
    try:
        with naming_skip_bad(skip_bad):
            shape = decided(image_shape, lambda: survey(paths, skip_bad=skip_bad))
            if through is None:
                x = np.empty((len(paths), *shape), np.uint8)
                skipped = fill_images(paths, x, fit, progress, skip_bad=skip_bad)
            else:
                x, skipped = _mapped(paths, shape, fit, through, progress, skip_bad=skip_bad)
    except MemoryError as error:
        size = shape_text(shape or ())
        raise DataError(
            f"{folder}: {len(paths):,} images of {size} do not fit into memory; absorb fewer at a time"
        ) from error
    if len(skipped) == len(paths):
        raise DataError(f"{folder}: none of its images can be read; replace them")
    labels = np.array([path.parent.name for k, path in enumerate(paths) if k not in skipped])
    reasons = tuple((paths[position], reason) for position, reason in skipped.items())
    return Task(x[: len(labels)], labels, printable(folder), reasons)


def task_folders(folder: Path) -> list[Path]:
    """The folders of class folders to train on, one per task: those inside `folder`, or itself.

    If `folder` holds `train` and `test`, only `train` counts.
    """
    train, _ = _train_and_test(folder)
    with reading(folder):
        folders = _folders_in(train)
        deep = any(_has_images(inner) for outer in folders for inner in _folders_in(outer))
        return folders if deep and not any(_has_images(path) for path in (train, *folders)) else [train]


def _train_and_test(folder: Path) -> tuple[Path, Path | None]:
    """The `train` and `test` folders, or the folder itself; with images directly inside they are classes."""
    with reading(folder):
        parts = {path.name.lower(): path for path in _folders_in(folder)}
        train, test = parts.get("train"), parts.get("test")
        if train is None or test is None or _has_images(train) or _has_images(test):
            return folder, None
        return train, test


def load_folder(
    folder: Path, image_shape: AskedShape | None, fit: ImageFit, progress: Progress
) -> tuple[Decoded, Classes | None]:
    """The images of a folder, decoded or from the cache, and (n,) the task folder of each training image.

    Without task folders the second is None.
    """
    check_fit(fit)
    asked = None if image_shape is None else checked_size(image_shape)
    train, test = _train_and_test(folder)
    folders = task_folders(folder)
    by_task = [list_images(path) for path in folders]
    files = {"train": [path for paths in by_task for path in paths]}
    classes = class_sorted((path.parent.name for path in files["train"]), folder)
    _warn_of_ignored(train, files["train"])
    if test is not None:
        files["test"] = list_images(test)
        unknown = next((path.parent for path in files["test"] if path.parent.name not in classes), None)
        if unknown is not None:
            raise DataError(f"{unknown} is a class without training images; add some or remove it")
        _warn_of_ignored(test, files["test"])
    every = [path for paths in files.values() for path in paths]

    def fill(parts: Mapping[str, Task]) -> None:
        for name, part in parts.items():
            fill_images(files[name], part.x, fit, progress)
            part.y[:] = class_indices((path.parent.name for path in files[name]), classes)

    def plan() -> Blueprint:
        sizes = {name: len(paths) for name, paths in files.items()}
        return Blueprint(classes, decided(asked, lambda: survey(every)), sizes, fill)

    mark = fingerprint(every, [str(path.relative_to(folder)) for path in every], asked, fit)
    groups = np.repeat(np.arange(len(by_task)), [len(paths) for paths in by_task])
    return cached(name_of(folder, asked, fit), mark, plan), None if folders == [train] else groups
