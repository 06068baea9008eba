"""CIFAR-100 from its binary version (folder or .tar.gz), or from its Python version."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from logcl.core.errors import DataError
from logcl.core.progress import Progress
from logcl.streams.archives import reading, tar_members
from logcl.streams.cache import Blueprint, Decoded, cached, fingerprint
from logcl.streams.cifar_pickle import read_pickled
from logcl.streams.sources import SOURCES, Files, find
from logcl.streams.stream import Task

_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
lizard lobster man maple motorcycle mountain mouse mushroom oak orange orchid otter palm pear
pickup_truck pine plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
television tiger tractor train trout tulip turtle wardrobe whale willow wolf woman worm
"""
CLASSES = tuple(_NAMES.split())
SIZES = {"train": 50000, "test": 10000}
# The published MD5 of the files inside the archives.
MD5 = {
    "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "test.bin": "4499cfba6c016c1be1438163640a0898",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
_RECORD = 2 + 3 * 32 * 32  # coarse label, fine label, then the red, green and blue planes
_RECORDS_AT_ONCE = 500
_REMEDY = SOURCES["cifar100"].remedy


def find_cifar100(folder: Path) -> Files | None:
    """The training and test file by name, or the archive that holds both; None if there is neither.

    The binary version is preferred.
    """
    for version, members in (("binary", ("train.bin", "test.bin")), ("python", ("train", "test"))):
        for place in (folder, folder / f"cifar-100-{version}"):
            # `train` is too common a name to trust outside this folder.
            if version == "python" and place.name != "cifar-100-python":
                continue
            if all((place / member).is_file() for member in members):
                return {member: place / member for member in members}
        archive = folder / f"cifar-100-{version}.tar.gz"
        if archive.is_file():
            return dict.fromkeys(members, archive)
    return None


def load_cifar100(data_dir: Path | None, progress: Progress, *, rebuild: bool = False) -> Decoded:
    """CIFAR-100 as (50000, 3, 32, 32) and (10000, 3, 32, 32) with its 100 fine classes."""
    files = find(SOURCES["cifar100"], data_dir, find_cifar100)

    def fill(parts: Mapping[str, Task]) -> None:
        missing = {member: parts[member.removesuffix(".bin")] for member in files}
        with progress.track("decoding cifar100", sum(SIZES.values())) as advance:
            for path, member, file in _open_members(files):
                if member not in missing:
                    raise DataError(f"{path} holds {member} twice; {_REMEDY}")
                part = missing.pop(member)
                with reading(path, _REMEDY):
                    _fill_part(path, member, file, part)
                advance(len(part.y))
                if not missing:
                    break
        if missing:
            raise DataError(f"{files[min(missing)]} does not hold {' and '.join(missing)}; {_REMEDY}")

    def plan() -> Blueprint:
        return Blueprint(CLASSES, (3, 32, 32), SIZES, fill)

    return cached("cifar100", fingerprint(files.values()), plan, rebuild=rebuild)


def _open_members(files: Files) -> Iterator[tuple[Path, str, IO[bytes]]]:
    for path in dict.fromkeys(files.values()):
        with reading(path, _REMEDY):
            if path.name.endswith(".tar.gz"):
                for name, file in tar_members(path, files.keys(), _REMEDY):
                    yield path, name, file
            else:
                with path.open("rb") as file:
                    yield path, path.name, file


def _fill_part(path: Path, member: str, file: IO[bytes], part: Task) -> None:
    """Read one part and check its length, labels, samples per class and checksum."""
    where = path if path.name == member else f"{path} ({member})"
    watched = _Watched(file)
    if member.endswith(".bin"):
        _fill_records(watched, part)
    else:
        try:
            part.x[:], part.y[:] = read_pickled(watched, len(part.y))
        except pickle.UnpicklingError as error:
            raise DataError(f"{where} cannot be read ({error}); {_REMEDY}") from error
    if watched.read(1):
        raise DataError(f"{where} has more than {len(part.y):,} images; {_REMEDY}")
    if watched.digest.hexdigest() != MD5[member]:
        raise DataError(f"{where} has the wrong checksum; {_REMEDY}")
    if not np.array_equal(np.sort(part.y), np.repeat(np.arange(len(CLASSES)), len(part.y) // len(CLASSES))):
        raise DataError(f"{where} does not have the same number of images per class; {_REMEDY}")


def _fill_records(file: _Watched, part: Task) -> None:
    for start in range(0, len(part.y), _RECORDS_AT_ONCE):
        stop = min(start + _RECORDS_AT_ONCE, len(part.y))
        content = file.read((stop - start) * _RECORD)
        if len(content) != (stop - start) * _RECORD:
            raise EOFError(f"it ends after image {start + len(content) // _RECORD:,} of {len(part.y):,}")
        records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
        part.x[start:stop] = records[:, 2:].reshape(-1, 3, 32, 32)
        part.y[start:stop] = records[:, 1]


class _Watched:
    """A file that updates a checksum with everything read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.md5(usedforsecurity=False)

    def read(self, size: int = -1) -> bytes:
        return self._seen(self._file.read(size))

    def readline(self) -> bytes:
        return self._seen(self._file.readline())

    def _seen(self, content: bytes) -> bytes:
        self.digest.update(content)
        return content
