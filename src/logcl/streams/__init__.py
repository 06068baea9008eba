"""The only reader of user data: named data sets, folders of images and `.npz` files.

`open_stream` gives a `Stream` of tasks with a test set, for experiments. `read_tasks` gives the tasks of a
source with their own labels and nothing held out, and `read_images` unlabelled images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from logcl.core.errors import BadSettings, DataError
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageFit, ImageShape
from logcl.core.sizes import AskedShape, ImageSize, parse_size
from logcl.core.text import printable
from logcl.streams.archives import reading
from logcl.streams.arrays import load_npz, read_npz, read_npz_images
from logcl.streams.catalog import CATALOG, Named, resolve
from logcl.streams.images import (
    decided,
    list_all_images,
    load_folder,
    read_folder,
    survey_source,
    task_folders,
)
from logcl.streams.pixels import check_fit, read_image
from logcl.streams.stream import (
    Classes,
    Pixels,
    Stream,
    Task,
    check_seed,
    class_order,
    cut_rows,
    group_rows,
    split_rows,
)
from logcl.streams.survey import Survey

__all__ = [
    "CATALOG", "Classes", "ImageShape", "Named", "Pixels", "Stream", "Survey", "Task", "check_fit",
    "check_size", "open_stream", "read_images", "read_npz", "read_npz_images", "read_tasks", "resolve",
    "survey_of",
]  # fmt: skip

_USER_TASKS = 5
_SILENT = Silent()


def read_tasks(
    source: str | Path | Named,
    image_shape: AskedShape | None = None,
    *,
    fit: ImageFit = "crop",
    first: int = 1,
    data_dir: str | Path | None = None,
    skip_bad: bool = False,
    through: Callable[[Pixels], Pixels] | None = None,
    progress: Progress = _SILENT,
) -> Iterator[Task]:
    """Yield the training tasks of a named data set, a folder or an `.npz`, starting with number `first`.

    `resolve` says which of them a text names. Labels are class names, or integers if an `.npz` has those.
    `image_shape`, e.g. 64 or (3, 64, 64), and `fit` are for image files, as in `read_folder`; what the shape
    leaves open is decided by the headers of all tasks. `skip_bad` leaves out unreadable image files;
    `through` maps images of files to something else, e.g. features, so that not all are in memory together.
    """
    found = resolve(source)
    if isinstance(found, Named):
        stream = open_stream(found, data_dir=data_dir, progress=progress)
        for number, task in enumerate(stream, start=1):
            if number >= first:
                names = np.array(stream.classes)[task.y]
                yield Task(task.x, names, f"{found.name}, task {number} of {len(stream)}")
    elif _is_folder(found):
        shape = decided(
            image_shape, partial(survey_source, found, first, skip_bad=skip_bad, progress=progress)
        )
        for folder in task_folders(found)[first - 1 :]:
            yield read_folder(folder, shape, fit=fit, skip_bad=skip_bad, through=through, progress=progress)
    elif first == 1:
        yield Task(*read_npz(found), printable(found))


def read_images(
    paths: Sequence[Path], image_shape: ImageShape, progress: Progress = _SILENT, *, fit: ImageFit = "crop"
) -> Iterator[tuple[list[str], Pixels]]:
    """Yield names and images (n, C, H, W) of image files, folders of them at any depth, and `.npz` files.

    Image files get `image_shape`, as `fit` says; arrays keep their shape.
    """
    files = [file for path in paths for file in (list_all_images(path) if path.is_dir() else [path])]
    with progress.track("reading images", len(files)) as advance:
        for file in files:
            if file.suffix.lower() == ".npz":
                x = read_npz_images(file)
                yield [f"{file}[{row}]" for row in range(len(x))], x
            else:
                yield [str(file)], read_image(file, image_shape, fit)[None]
            advance()


def open_stream(
    source: str | Path | Named,
    *,
    data_dir: str | Path | None = None,
    tasks: int | None = None,
    seed: int | None = 0,
    image_shape: AskedShape | None = None,
    fit: ImageFit = "crop",
    progress: Progress = _SILENT,
) -> Stream:
    """Open a named data set, a folder of images or an `.npz` as a stream of tasks; see `resolve`.

    `data_dir` holds the official files of named data sets; if it is None, LOGCL_DATA and the downloads of
    `logcl data get` are searched. `tasks` is any number from 1 to the number of training samples; None is the
    default of the stream. The seed decides the test split if the data has none, the class order of cifar100
    and the order within each task; None means the natural class order, and 0 for the rest. `image_shape` and
    `fit` are for image files, as in `read_folder`: other data is not resized.
    """
    check_seed(seed)
    found = resolve(source)
    named = found if isinstance(found, Named) else None
    groups = None
    if isinstance(found, Named):
        name = found.name
        data = found.load(Path(data_dir).expanduser() if data_dir is not None else None, progress)
    elif _is_folder(found):
        name = printable(found.resolve().name)
        data, groups = load_folder(found, image_shape, fit, progress)
    else:
        name = printable(found.stem)
        data = load_npz(found, progress)
    x, y = data.train.x, data.train.y
    if image_shape is not None:
        check_size(parse_size(image_shape), x.shape[1:], name)
    rows, test = np.arange(len(y)), data.test
    if test is None:
        rows, test_rows = split_rows(y if groups is None else groups * len(data.classes) + y, seed)
        test = Task(x[test_rows], y[test_rows])
    if groups is None:
        order = class_order(len(data.classes), seed if named is not None and named.order_by_seed else None)
        if tasks is None:
            tasks = min(named.tasks if named is not None else _USER_TASKS, len(data.classes))
        members = cut_rows(y, rows, order, tasks, seed)
    elif tasks in (None, groups[-1] + 1):
        members = group_rows(groups, rows, seed)
    else:
        raise BadSettings(
            f"{source} holds {groups[-1] + 1} task folders and cannot be split into {tasks} tasks; leave out "
            "the number of tasks"
        )
    return Stream(name, data.classes, x, y, members, test.x, test.y)


def check_size(asked: ImageSize, shape: Sequence[int], name: str) -> None:
    """Refuse a size other than that of arrays, which are not resized."""
    if not asked.allows(shape):
        raise BadSettings(
            f"the images of {name} have shape {tuple(shape)}, not {asked.shape(shape[0])}; leave out the "
            "image shape, as only image files are resized"
        )


def survey_of(
    source: str | Path | Named, first: int = 1, *, skip_bad: bool = False, progress: Progress = _SILENT
) -> Survey | None:
    """The headers of the images of a folder, task folders from number `first`; None for arrays."""
    found = resolve(source)
    if isinstance(found, Named) or not _is_folder(found):
        return None
    return survey_source(found, first, skip_bad=skip_bad, progress=progress)


def _is_folder(path: Path) -> bool:
    """Whether user data is a folder; otherwise it is an `.npz` file."""
    with reading(path):
        is_folder, is_file = path.is_dir(), path.is_file()
    if not is_folder and not is_file:
        raise DataError(
            f"{path} is not a file, a folder or a named data set; give a folder of class-named folders of "
            f"images, an .npz file or one of: {', '.join(CATALOG)}"
        )
    if is_file and path.suffix.lower() != ".npz":
        raise DataError(f"{path} is not an .npz file; give one, or a folder of class-named folders of images")
    return is_folder
