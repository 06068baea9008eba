"""The official files of named data sets: where to look for them, and downloading them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from logcl.core.errors import CannotWrite, DataError
from logcl.core.files import cache_folder

if TYPE_CHECKING:
    import requests

Files = dict[str, Path]
"""The parts of a data set: name → file, archive or folder."""


@dataclass(frozen=True)
class Source:
    """The files of a data set as its authors publish them, and the forms they have on users' disks."""

    name: str
    checksums: dict[str, str]
    """File name → published MD5."""
    mirrors: tuple[str, ...]
    """URLs of folders with these files, tried in turn."""
    folders: tuple[str, ...]
    """Sub-folders of a data folder to search."""
    forms: tuple[Mapping[str, tuple[str, ...]], ...]
    """Alternatives, best first: part → the paths it may have; that of a folder ends with a slash."""

    @property
    def remedy(self) -> str:
        """What to do about a damaged file."""
        return f"remove it and get it again with `logcl data get {self.name}`"

    def search(self, data_dir: Path | None) -> Files | None:
        """The parts in the first folder that holds the whole data set; None if there is none."""
        for folder in data_folders(self, data_dir):
            for form in self.forms:
                found = {
                    part: folder / path
                    for part, paths in form.items()
                    for path in reversed(paths)  # the first one wins
                    if ((folder / path).is_dir() if path.endswith("/") else (folder / path).is_file())
                }
                if len(found) == len(form):
                    return found
        return None

    def find(self, data_dir: Path | None) -> Files:
        """The parts of the data set; an error that says how to get them if it is not there."""
        found = self.search(data_dir)
        if found is not None:
            return found
        places = [str(root) for root in (*_user_roots(data_dir), download_folder(self, None))]
        raise DataError(
            f"the data set {self.name} is missing or incomplete in {' and '.join(places)}; download it with "
            f"`logcl data get {self.name}`, or set LOGCL_DATA or --data-dir to a folder that holds "
            f"{', '.join(self.checksums)}"
        )


_MNIST = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
_OMNIGLOT = {
    "images_background.zip": "68d2efa1b9178cc56df9314c21c6e718",
    "images_evaluation.zip": "6b91aef0f799c5bb55b94e3f2daec811",
}
_BINARY, _PYTHON = "cifar-100-binary", "cifar-100-python"
SOURCES = {
    "mnist": Source(
        "mnist",
        _MNIST,
        # The author's site no longer serves the files.
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        ("mnist", "MNIST", "mnist/raw", "MNIST/raw", "raw"),
        ({gz[:-3]: (gz, gz[:-3], gz[:-3].replace("-idx", ".idx")) for gz in _MNIST},),
    ),
    "omniglot": Source(
        "omniglot",
        _OMNIGLOT,
        (
            "https://github.com/brendenlake/omniglot/raw/master/python/",
            "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/",
        ),
        ("omniglot", "Omniglot", "omniglot-py", "omniglot/python", "python"),
        ({name[:-4]: (name, f"{name[:-4]}/") for name in _OMNIGLOT},),
    ),
    "cifar100": Source(
        "cifar100",
        {f"{_BINARY}.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        ("https://www.cs.toronto.edu/~kriz/",),
        ("cifar100", "cifar-100", "CIFAR100", "CIFAR-100", "cifar"),
        (
            {part: (part, f"{_BINARY}/{part}", f"{_BINARY}.tar.gz") for part in ("train.bin", "test.bin")},
            {part: (f"{_PYTHON}/{part}", f"{_PYTHON}.tar.gz") for part in ("train", "test")},
            # These names are too common to trust without all three.
            {part: (part,) for part in ("train", "test", "meta")},
        ),
    ),
}


def data_folders(source: Source, data_dir: Path | None) -> list[Path]:
    """The existing folders to search: the user's first, then the downloads."""
    if data_dir is not None and not data_dir.is_dir():
        raise DataError(f"the data folder {data_dir} does not exist; create it, or leave out --data-dir")
    roots = _user_roots(data_dir)
    places = [place for root in roots for place in (root, *(root / name for name in source.folders))]
    return [place for place in (*places, download_folder(source, None)) if place.is_dir()]


def _user_roots(data_dir: Path | None) -> list[Path]:
    if data_dir is not None:
        return [data_dir]
    return [Path(folder).expanduser() for folder in [os.environ.get("LOGCL_DATA")] if folder]


def download_folder(source: Source, data_dir: Path | None) -> Path:
    """Where `download` puts the files."""
    return (data_dir or cache_folder() / "downloads") / source.name


def download(source: Source, folder: Path, *, progressbar: bool = False) -> list[Path]:
    """Download the files of a data set to `folder`, except those that are already there and correct.

    A file gets its name only once its checksum is verified. LOGCL_MIRROR is a URL to try first.
    """
    own = os.environ.get("LOGCL_MIRROR")
    mirrors = (own.rstrip("/") + "/", *source.mirrors) if own else source.mirrors
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_fetch(source, name, folder, mirrors, progressbar) for name in source.checksums]
    except OSError as error:
        raise CannotWrite(
            f"{folder} cannot be written ({error.strerror or error}); set LOGCL_CACHE to another folder"
        ) from error


def _fetch(source: Source, name: str, folder: Path, mirrors: tuple[str, ...], progressbar: bool) -> Path:
    import pooch  # imported here because they are slow to import and only downloads need them
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    failures = []
    for mirror in mirrors:
        try:
            pooch.retrieve(
                mirror + name,
                known_hash=f"md5:{source.checksums[name]}",
                fname=name,
                path=folder,
                downloader=pooch.HTTPDownloader(progressbar=progressbar, timeout=30),
            )
            return folder / name
        except requests.exceptions.RequestException as error:
            failures.append(f"{mirror}: {_short(error)}")
        except ValueError:  # pooch's error for a wrong checksum
            failures.append(f"{mirror}: wrong checksum")
    raise DataError(
        f"{name} could not be downloaded ({', '.join(failures)}); check the network and try again, or put "
        "the official files into a folder and set LOGCL_DATA to it"
    )


def _short(error: requests.exceptions.RequestException) -> str:
    import requests

    if error.response is not None:
        return f"HTTP {error.response.status_code}"
    if isinstance(error, requests.exceptions.Timeout):
        return "timed out"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "transfer interrupted"
    return "no connection"
