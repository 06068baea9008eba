"""The only reader of user data: named data sets, folders of images and `.npz` files.

`open_stream` gives a `Stream` of tasks with a test set, for experiments. `read_tasks` gives the tasks of a
source as they are, with their own labels and nothing held out, and `read_images` unlabelled images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from logcl.core.errors import BadSettings, DataError
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageShape
from logcl.streams.archives import reading
from logcl.streams.arrays import load_npz, read_npz, read_npz_images
from logcl.streams.cache import Decoded
from logcl.streams.catalog import CATALOG, Named
from logcl.streams.folder import list_folder, load_folder, task_folders
from logcl.streams.images import list_all_images, read_folder
from logcl.streams.pixels import read_image
from logcl.streams.stream import Classes, Pixels, Rows, Stream, Task
from logcl.streams.tasks import check_seed, class_order, cut_rows, group_rows, split_rows

__all__ = [
    "CATALOG", "Classes", "ImageShape", "Pixels", "Stream", "Task", "open_stream", "read_images", "read_npz",
    "read_npz_images", "read_tasks",
]  # fmt: skip

_USER_TASKS = 5
_SILENT = Silent()


def read_tasks(
    source: str | Path,
    image_shape: ImageShape | None = None,
    *,
    first: int = 1,
    data_dir: str | Path | None = None,
    skip_bad: bool = False,
    progress: Progress = _SILENT,
) -> Iterator[Task]:
    """Yield the training tasks of a named data set, a folder or an `.npz`, starting with number `first`.

    Labels are class names, or integers if an `.npz` has those. `image_shape` (C, H, W) is for image files;
    if it is None, the first folder decides. `skip_bad` leaves out unreadable image files.
    """
    if str(source) in CATALOG:
        stream = open_stream(source, data_dir=data_dir, progress=progress)
        for number, task in enumerate(stream, start=1):
            if number >= first:
                names = np.array(stream.classes)[task.y]
                yield Task(task.x, names, f"{source}, task {number} of {len(stream)}")
    elif _is_folder(Path(source)):
        for folder in task_folders(Path(source))[first - 1 :]:
            task = read_folder(folder, image_shape, skip_bad=skip_bad, progress=progress)
            channels, height, width = task.x.shape[1:]
            image_shape = channels, height, width
            yield task
    elif first == 1:
        yield Task(*read_npz(source), str(source))


def read_images(
    paths: Sequence[Path], image_shape: ImageShape, progress: Progress = _SILENT
) -> Iterator[tuple[list[str], Pixels]]:
    """Yield names and images (n, C, H, W) of image files, folders of them at any depth, and `.npz` files.

    Image files are resized to `image_shape`; arrays keep their shape.
    """
    files = [file for path in paths for file in (list_all_images(path) if path.is_dir() else [path])]
    with progress.track("reading images", len(files)) as advance:
        for file in files:
            if file.suffix.lower() == ".npz":
                x = read_npz_images(file)
                yield [f"{file}[{row}]" for row in range(len(x))], x
            else:
                yield [str(file)], read_image(file, image_shape)[None]
            advance()


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

    `data_dir` holds the official files of named data sets; if it is None, LOGCL_DATA and the downloads of
    `logcl data get` are searched. `tasks` is any number from 1 to the number of training samples; None is the
    default of the stream. The seed decides the test split if the data has none, the class order of cifar100
    and the order within each task; None means the natural class order, and 0 for the rest. `image_shape`
    (C, H, W) is for image files: other data is not resized.
    """
    check_seed(seed)
    if str(name_or_path) in CATALOG:
        folder = Path(data_dir).expanduser() if data_dir is not None else None
        return _open_named(CATALOG[str(name_or_path)], folder, tasks, seed, image_shape, progress)
    path = Path(name_or_path)
    if _is_folder(path):
        return _open_folder(path, tasks, seed, image_shape, progress)
    data = load_npz(path, progress)
    _refuse_other_shape(str(path), data, image_shape)
    return _cut(path.stem, data, tasks, _USER_TASKS, seed)


def _is_folder(path: Path) -> bool:
    """Whether user data is a folder; otherwise it is an `.npz` file."""
    with reading(path, "check the path and its permissions"):
        is_folder, is_file = path.is_dir(), path.is_file()
    if not is_folder and not is_file:
        raise DataError(
            f"{path} is not a file, a folder or a named data set; give a folder of class-named folders of "
            f"images, an .npz file or one of: {', '.join(CATALOG)}"
        )
    if is_file and path.suffix.lower() != ".npz":
        raise DataError(f"{path} is not an .npz file; give one, or a folder of class-named folders of images")
    return is_folder


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
            f"{path} holds {len(listing.tasks)} task folders and cannot be split into {tasks} tasks; "
            "leave out the number of tasks"
        )
    groups = listing.task_of_row
    rows, test_rows = _split(data, groups * len(data.classes) + data.train.y, seed)
    return _stream(path.resolve().name, data, group_rows(groups, rows, seed), test_rows)


def _cut(
    name: str,
    data: Decoded,
    tasks: int | None,
    default_tasks: int,
    seed: int | None,
    order: tuple[int, ...] | None = None,
) -> Stream:
    """Split off a test set if there is none, and cut the classes, by default in natural order, into tasks."""
    if tasks is None:
        tasks = min(default_tasks, len(data.classes))
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
            f"the images of {name} have shape {own}, not {tuple(image_shape)}; leave out the image shape, as "
            "only image files are resized"
        )
