"""MNIST from its four IDX files, gzipped or not."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from logcl.core.errors import DataError
from logcl.core.progress import Progress
from logcl.streams.archives import reading
from logcl.streams.cache import Blueprint, Decoded, cached, fingerprint
from logcl.streams.sources import SOURCES, Files, find
from logcl.streams.stream import Pixels, Task


@dataclass(frozen=True)
class IdxFile:
    """The expected content of an IDX file. Its magic number is 2048 plus the number of dimensions."""

    name: str
    dims: tuple[int, ...]
    sha256: str
    """Of the uncompressed file; the published MD5 are of the gzipped ones."""


# Part → images, labels.
FILES: dict[str, tuple[IdxFile, IdxFile]] = {
    "train": (
        IdxFile(
            "train-images-idx3-ubyte",
            (60000, 28, 28),
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        IdxFile(
            "train-labels-idx1-ubyte",
            (60000,),
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
    ),
    "test": (
        IdxFile(
            "t10k-images-idx3-ubyte",
            (10000, 28, 28),
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        IdxFile(
            "t10k-labels-idx1-ubyte",
            (10000,),
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
}
_REMEDY = SOURCES["mnist"].remedy


def find_mnist(folder: Path) -> Files | None:
    """The four files in a folder, by their official names; None if any is missing."""
    found = {}
    for file in (file for pair in FILES.values() for file in pair):
        usual = (f"{file.name}.gz", file.name, file.name.replace("-idx", ".idx"))
        path = next((folder / name for name in usual if (folder / name).is_file()), None)
        if path is None:
            return None
        found[file.name] = path
    return found


def load_mnist(data_dir: Path | None, progress: Progress, *, rebuild: bool = False) -> Decoded:
    """MNIST as (60000, 1, 28, 28) and (10000, 1, 28, 28), classes 0 to 9."""
    paths = find(SOURCES["mnist"], data_dir, find_mnist)

    def fill(parts: Mapping[str, Task]) -> None:
        with progress.track("decoding mnist", sum(len(part.y) for part in parts.values())) as advance:
            for name, part in parts.items():
                images, labels = FILES[name]
                read_idx(paths[images.name], images, part.x)
                classes = np.empty(labels.dims, np.uint8)
                read_idx(paths[labels.name], labels, classes)
                part.y[:] = classes
                advance(len(part.y))

    def plan() -> Blueprint:
        sizes = {name: images.dims[0] for name, (images, _) in FILES.items()}
        _, height, width = FILES["train"][0].dims
        return Blueprint(tuple("0123456789"), (1, height, width), sizes, fill)

    return cached("mnist", fingerprint(paths.values()), plan, rebuild=rebuild)


def read_idx(path: Path, expected: IdxFile, out: Pixels) -> None:
    """Read and check an IDX file; `out` is contiguous and has as many values."""
    with reading(path, _REMEDY), _open(path) as file:
        header = file.read(4 + 4 * len(expected.dims))
        magic, *dims = struct.unpack(f">{1 + len(expected.dims)}I", header)
        expected_magic = 2048 + len(expected.dims)
        if magic != expected_magic:
            raise DataError(f"{path} has the magic number {magic} instead of {expected_magic}; {_REMEDY}")
        if tuple(dims) != expected.dims:
            raise DataError(f"{path} has dimensions {dims} instead of {list(expected.dims)}; {_REMEDY}")
        digest = hashlib.sha256(header)
        values = out.reshape(-1).data
        assert len(values) == math.prod(expected.dims)
        while len(values):
            piece = file.read(min(len(values), 1 << 20))
            if not piece:
                raise EOFError(f"{len(values)} bytes are missing")
            digest.update(piece)
            values[: len(piece)] = piece
            values = values[len(piece) :]
        if file.read(1):
            raise DataError(f"{path} is longer than its header says; {_REMEDY}")
    if digest.hexdigest() != expected.sha256:
        raise DataError(f"{path} has the wrong checksum; {_REMEDY}")


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")
