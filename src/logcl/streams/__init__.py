"""Streams of labelled images: named data sets, folders and arrays, cut into tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from logcl.core.errors import BadSettings, DataError
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageShape
from logcl.streams.archives import reading
from logcl.streams.arrays import load_npz, read_npz, read_npz_images
from logcl.streams.cache import Decoded
from logcl.streams.catalog import CATALOG, Named
from logcl.streams.folder import list_folder, load_folder
from logcl.streams.stream import Classes, Pixels, Rows, Stream, Task
from logcl.streams.tasks import check_seed, class_order, cut_rows, group_rows, split_rows

__all__ = [
    "CATALOG",
    "Classes",
    "ImageShape",
    "Pixels",
    "Stream",
    "Task",
    "open_stream",
    "read_npz",
    "read_npz_images",
]

_USER_TASKS = 5
_SILENT = Silent()


def open_stream(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    tasks: int | None = None,
    seed: int | None = 0,
    image_shape: ImageShape | None = None,
    progress: Progress = _SILENT,
) -> Stream:
    """Open a named data set, a folder of images or an `.npz` as a stream of tasks.

    `data_dir` holds the official files of named data sets; without it they are looked for in LOGCL_DATA and
    among what `logcl data get` fetched. `tasks` is any number from 1 to the number of training samples; None
    takes the stream's own. The seed decides the test split where the data has none, the class order of
    cifar100 and the order within each task; None is the natural class order and otherwise like 0.
    `image_shape` (C, H, W) is for image files: other data keeps its own.
    """
    check_seed(seed)
    if str(name_or_path) in CATALOG:
        folder = Path(data_dir).expanduser() if data_dir is not None else None
        return _open_named(CATALOG[str(name_or_path)], folder, tasks, seed, image_shape, progress)
    path = Path(name_or_path)
    with reading(path, "check the path and its permissions"):
        is_folder, is_file = path.is_dir(), path.is_file()
    if is_folder:
        return _open_folder(path, tasks, seed, image_shape, progress)
    if is_file:
        if path.suffix.lower() != ".npz":
            raise DataError(f"{path}: is neither a folder of images nor an .npz file.")
        data = load_npz(path, progress)
        _refuse_other_shape(str(path), data, image_shape)
        return _cut(path.stem, data, tasks, _USER_TASKS, seed)
    raise DataError(
        f"There is no stream called {str(name_or_path)!r}, and no such file or folder: the named streams are "
        f"{', '.join(CATALOG)}; otherwise give a folder of class-named folders of images or an .npz file."
    )


def _open_named(
    named: Named,
    data_dir: Path | None,
    tasks: int | None,
    seed: int | None,
    image_shape: ImageShape | None,
    progress: Progress,
) -> Stream:
    data = named.load(data_dir, progress)
    _refuse_other_shape(named.name, data, image_shape)
    order = class_order(len(data.classes), seed) if named.order_by_seed else None
    return _cut(named.name, data, tasks, named.tasks, seed, order)


def _open_folder(
    path: Path, tasks: int | None, seed: int | None, image_shape: ImageShape | None, progress: Progress
) -> Stream:
    listing = list_folder(path)
    data = load_folder(path, listing, image_shape, progress)
    if not listing.has_tasks:
        return _cut(path.resolve().name, data, tasks, _USER_TASKS, seed)
    if tasks not in (None, len(listing.tasks)):
        raise BadSettings(
            f"{path} holds {len(listing.tasks)} task folders, so it cannot be cut into {tasks} tasks: "
            "leave the number of tasks out."
        )
    groups = listing.task_of_row
    rows, test_rows = _split(data, groups * len(data.classes) + data.train.y, seed)
    return _stream(path.resolve().name, data, group_rows(groups, rows, seed), test_rows)


def _cut(
    name: str,
    data: Decoded,
    tasks: int | None,
    usual_tasks: int,
    seed: int | None,
    order: tuple[int, ...] | None = None,
) -> Stream:
    """Cut the classes, in their natural order if none is given, into tasks; split a test part off first."""
    if tasks is None:
        tasks = min(usual_tasks, len(data.classes))
    rows, test_rows = _split(data, data.train.y, seed)
    order = order or class_order(len(data.classes), None)
    return _stream(name, data, cut_rows(data.train.y, rows, order, tasks, seed), test_rows)


def _split(data: Decoded, strata: Classes, seed: int | None) -> tuple[Rows, Rows | None]:
    if data.test is not None:
        return np.arange(len(strata)), None
    return split_rows(strata, seed)


def _stream(name: str, data: Decoded, members: tuple[Rows, ...], test_rows: Rows | None) -> Stream:
    train = data.train
    if data.test is not None:
        test_x, test_y = data.test.x, data.test.y
    else:
        test_x, test_y = train.x[test_rows], train.y[test_rows]
    return Stream(name, data.classes, train.x, train.y, members, test_x, test_y)


def _refuse_other_shape(name: str, data: Decoded, image_shape: ImageShape | None) -> None:
    own = data.train.x.shape[1:]
    if image_shape is not None and tuple(image_shape) != own:
        raise BadSettings(
            f"The images of {name} have the shape {own}, not {tuple(image_shape)}: "
            "only image files are resized."
        )
