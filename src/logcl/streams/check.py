"""Check that the files of named data sets are present and correct."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from logcl.core.progress import Progress
from logcl.streams.catalog import Named


@dataclass(frozen=True)
class FileReport:
    """One file or folder that a data set is read from."""

    path: Path
    bytes: int | None
    """None for a folder."""
    published: bool | None
    """Whether it has the published checksum; None if there is none to compare with."""


@dataclass(frozen=True)
class Report:
    """Files and sizes of a data set that was checked."""

    name: str
    files: tuple[FileReport, ...]
    classes: int
    train: int
    """Training samples; all samples if the test set is split off by the seed."""
    test: int | None
    image_shape: tuple[int, ...]


def locate(data_set: Named, data_dir: Path | None) -> tuple[Path, ...] | None:
    """The files of a data set: empty if it comes with scikit-learn, None if they are not all present."""
    files = data_set.source.search(data_dir) if data_set.source else {}
    return None if files is None else tuple(dict.fromkeys(files.values()))


def check(data_set: Named, data_dir: Path | None, progress: Progress, *, rebuild: bool = True) -> Report:
    """Decode a data set again, replacing its cache entry.

    Decoding checks the content (checksums, or counts and sizes) and raises a DataError at the first
    mistake; the report adds whether the files are the published ones byte for byte.
    """
    paths = locate(data_set, data_dir)
    data = data_set.load(data_dir, progress, rebuild=rebuild)
    files = tuple(_report(data_set, path) for path in paths or ())
    test = None if data.test is None else len(data.test.y)
    return Report(data_set.name, files, len(data.classes), len(data.train.y), test, data.train.x.shape[1:])


def _report(data_set: Named, path: Path) -> FileReport:
    import pooch  # slow to import

    known = data_set.source.checksums.get(path.name) if data_set.source else None
    published = pooch.file_hash(str(path), "md5") == known if known and path.is_file() else None
    return FileReport(path, path.stat().st_size if path.is_file() else None, published)
