"""CIFAR-100 from its binary version (folder or .tar.gz), or from its Python version."""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from logcl.core.errors import DataError
from logcl.core.progress import Progress
from logcl.streams.archives import members, reading
from logcl.streams.cache import Blueprint, blueprint_of
from logcl.streams.sources import SOURCES, Files
from logcl.streams.stream import Classes, Pixels

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
# The published MD5 of the files inside the archives.
MD5 = {
    "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "test.bin": "4499cfba6c016c1be1438163640a0898",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
_RECORD = 2 + 3 * 32 * 32  # coarse label, fine label, then the red, green and blue planes
_LARGEST_FILE = 1 << 28  # bytes; the official ones have up to 155 million
_REMEDY = SOURCES["cifar100"].remedy


def plan_cifar100(files: Files, progress: Progress) -> Blueprint:
    """CIFAR-100 as (50000, 3, 32, 32) and (10000, 3, 32, 32) with its 100 fine classes."""
    parts = {}
    with progress.track("decoding cifar100", 2) as advance:
        for path in dict.fromkeys(files.values()):
            for name, content in members(path, r"(.*/)?(train|test)(\.bin)?", _LARGEST_FILE, _REMEDY):
                member = PurePosixPath(name).name
                where = path if path.name == member else f"{path} ({member})"
                if hashlib.md5(content, usedforsecurity=False).hexdigest() != MD5[member]:
                    raise DataError(f"{where} has the wrong checksum; {_REMEDY}")
                decode = _from_records if member.endswith(".bin") else from_pickle
                with reading(where, _REMEDY):
                    parts[member.removesuffix(".bin")] = decode(content)
                advance()
    if missing := [part for part in ("train", "test") if part not in parts]:
        raise DataError(f"{path} does not hold {' and '.join(missing)}; {_REMEDY}")
    return blueprint_of(CLASSES, train=parts["train"], test=parts["test"])


def _from_records(content: bytes) -> tuple[Pixels, Classes]:
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    return records[:, 2:].reshape(-1, 3, 32, 32), records[:, 1].astype(np.int64)


_HARMLESS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _ArraysOnly(pickle.Unpickler):
    """Refuses all names but those of numpy arrays: a pickle can call any function that it can name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("._core", ".core"), name) not in _HARMLESS:
            raise pickle.UnpicklingError(f"it needs {module}.{name}")
        return super().find_class(module, name)


def from_pickle(content: bytes) -> tuple[Pixels, Classes]:
    """Images (n, 3, 32, 32) and fine labels (n,) of one file of the Python version."""
    batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    return batch[b"data"].reshape(-1, 3, 32, 32), np.array(batch[b"fine_labels"], np.int64)
