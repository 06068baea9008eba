"""Folders of images as streams: class folders, task folders of class folders, train/ and test/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import PIL

from logcl.core.errors import DataError
from logcl.core.progress import Progress
from logcl.core.settings import ImageShape
from logcl.streams.archives import reading
from logcl.streams.cache import Blueprint, Decoded, cached, fingerprint, name_of
from logcl.streams.images import (
    class_sorted,
    fill_images,
    has_images,
    infer_image_shape,
    list_images,
    visible_folders,
    warn_of_ignored,
)
from logcl.streams.pixels import check_image_shape
from logcl.streams.stream import Classes, Task

ByClass = dict[str, list[Path]]


@dataclass(frozen=True)
class FolderListing:
    """The files of a folder stream, before any is opened."""

    tasks: tuple[ByClass, ...]
    """One per task folder, or a single one if there are no task folders."""
    has_tasks: bool
    test: ByClass | None

    @property
    def classes(self) -> tuple[str, ...]:
        """All class names, sorted."""
        return class_sorted(chain.from_iterable(self.tasks))

    @property
    def train_files(self) -> list[Path]:
        """The training images: row i of the decoded array is file i."""
        return [path for task in self.tasks for paths in task.values() for path in paths]

    @property
    def test_files(self) -> list[Path]:
        """The test images, in the order of their rows."""
        return [path for paths in (self.test or {}).values() for path in paths]

    @property
    def task_of_row(self) -> Classes:
        """(n,) the task folder of each training image."""
        sizes = [sum(len(paths) for paths in task.values()) for task in self.tasks]
        return np.repeat(np.arange(len(sizes)), sizes)


def list_folder(folder: Path) -> FolderListing:
    """Recognise the layout of a folder and list its images."""
    with reading(folder, "check its permissions"):
        train, test = _train_and_test(folder)
    folders = task_folders(folder)
    tasks = tuple(list_images(path) for path in folders)
    listing = FolderListing(tasks, folders != [train], None if test is None else list_images(test))
    unknown = class_sorted(set(listing.test or ()) - set(listing.classes))
    if test is not None and unknown:
        raise DataError(f"{test / unknown[0]} is a class without training images; add some or remove it")
    warn_of_ignored(train, listing.train_files)
    if test is not None:
        warn_of_ignored(test, listing.test_files)
    return listing


def task_folders(folder: Path) -> list[Path]:
    """The folders of class folders to train on, one per task: those inside `folder`, or itself.

    If `folder` holds `train` and `test`, only `train` counts.
    """
    with reading(folder, "check its permissions"):
        train, _ = _train_and_test(folder)
        folders = visible_folders(train)
        deep = any(has_images(inner) for outer in folders for inner in visible_folders(outer))
        return folders if deep and not any(has_images(path) for path in (train, *folders)) else [train]


def _train_and_test(folder: Path) -> tuple[Path, Path | None]:
    """The `train` and `test` folders, or the folder itself; with images directly inside they are classes."""
    parts = {path.name.lower(): path for path in visible_folders(folder)}
    train, test = parts.get("train"), parts.get("test")
    if train is None or test is None or has_images(train) or has_images(test):
        return folder, None
    return train, test


def load_folder(
    folder: Path, listing: FolderListing, image_shape: ImageShape | None, progress: Progress
) -> Decoded:
    """The listed images, decoded or from the cache, in the order of the listing."""
    if image_shape is not None:
        check_image_shape(image_shape)
    files = listing.train_files + listing.test_files

    def plan() -> Blueprint:
        def fill(parts: Mapping[str, Task]) -> None:
            fill_images(listing.train_files, parts["train"].x, progress)
            parts["train"].y[:] = np.concatenate([_labels(task, listing.classes) for task in listing.tasks])
            if listing.test is not None:
                fill_images(listing.test_files, parts["test"].x, progress)
                parts["test"].y[:] = _labels(listing.test, listing.classes)

        sizes = {"train": len(listing.train_files)}
        if listing.test is not None:
            sizes["test"] = len(listing.test_files)
        return Blueprint(listing.classes, image_shape or infer_image_shape(files), sizes, fill)

    places = [str(path.relative_to(folder)) for path in files]
    mark = fingerprint(files, places, image_shape, PIL.__version__)
    return cached(name_of(folder, image_shape), mark, plan)


def _labels(by_class: ByClass, classes: tuple[str, ...]) -> Classes:
    index = {name: position for position, name in enumerate(classes)}
    return np.repeat([index[name] for name in by_class], [len(paths) for paths in by_class.values()])
