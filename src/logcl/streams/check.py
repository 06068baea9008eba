"""Whether the data sets on this machine are there and right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from logcl.core.errors import DataError
from logcl.core.progress import Progress
from logcl.streams.catalog import Named
from logcl.streams.sources import data_folders, md5


@dataclass(frozen=True)
class FileReport:
    """One file or folder that a data set is read from."""

    path: Path
    bytes: int | None
    """None for a folder."""
    published: bool | None
    """Whether it has the published checksum; None where there is none to compare with."""


@dataclass(frozen=True)
class Report:
    """What a data set was found to be."""

    name: str
    files: tuple[FileReport, ...]
    classes: int
    train: int
    """Samples; all of them where the test part is split off by the seed."""
    test: int | None
    image_shape: tuple[int, ...]


def locate(data_set: Named, data_dir: Path | None) -> tuple[Path, ...] | None:
    """What the data set would be read from: nothing if it comes with scikit-learn, None if it is absent."""
    if data_set.source is None:
        return ()
    for folder in data_folders(data_set.source, data_dir):
        files = data_set.recognise(folder)
        if files is not None:
            return tuple(dict.fromkeys(files.values()))
    return None


def check(data_set: Named, data_dir: Path | None, progress: Progress, *, rebuild: bool = True) -> Report:
    """Read every file of a data set anew, and replace what the cache holds of it.

    Decoding compares checksums of the content, counts, sizes and labels, and raises a DataError at the first
    that is wrong; here is added whether the files are the published ones byte for byte.
    """
    paths = locate(data_set, data_dir)
    data = data_set.load(data_dir, progress, rebuild=rebuild)
    files = tuple(_report(data_set, path) for path in paths or ())
    for part in (data.train, data.test):
        if part is not None and len(np.unique(part.y)) != len(data.classes):
            raise DataError(f"The data set {data_set.name} lacks samples of some classes.")
    test = None if data.test is None else len(data.test.y)
    return Report(data_set.name, files, len(data.classes), len(data.train.y), test, data.train.x.shape[1:])


def _report(data_set: Named, path: Path) -> FileReport:
    known = data_set.source.checksums.get(path.name) if data_set.source else None
    published = md5(path) == known if known and path.is_file() else None
    return FileReport(path, path.stat().st_size if path.is_file() else None, published)
