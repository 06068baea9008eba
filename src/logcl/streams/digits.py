"""Handwritten digits: MNIST from its four IDX files, and the 1,797 of 8x8 that come with scikit-learn."""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from logcl.core.errors import DataError
from logcl.core.progress import Progress
from logcl.streams.archives import members
from logcl.streams.cache import Blueprint, blueprint_of
from logcl.streams.sources import SOURCES, Files

CLASSES = tuple("0123456789")
# Of the uncompressed files; the published MD5 are of the gzipped ones.
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_LARGEST_FILE = 1 << 26  # bytes; the training images have 47 million
_REMEDY = SOURCES["mnist"].remedy


def plan_mnist(files: Files, progress: Progress) -> Blueprint:
    """MNIST as (60000, 1, 28, 28) and (10000, 1, 28, 28), classes 0 to 9."""
    arrays = []
    with progress.track("decoding mnist", len(SHA256)) as advance:
        for name, digest in SHA256.items():
            ((_, content),) = members(files[name], ".*", _LARGEST_FILE, _REMEDY)
            if hashlib.sha256(content).hexdigest() != digest:
                raise DataError(f"{files[name]} has the wrong checksum; {_REMEDY}")
            count = content[3]  # of dimensions; their sizes follow
            values = np.frombuffer(content, np.uint8, offset=4 + 4 * count)
            arrays.append(values.reshape(struct.unpack_from(f">{count}I", content, 4)))
            advance()
    x, y, test_x, test_y = arrays
    return blueprint_of(CLASSES, train=(x[:, None], y), test=(test_x[:, None], test_y))


def plan_digits(files: Files, progress: Progress) -> Blueprint:
    """All of scikit-learn's digits as training samples: the test set is split off by the seed."""
    del files, progress
    from sklearn.datasets import load_digits  # slow to import

    bunch = load_digits()
    return blueprint_of(CLASSES, train=(np.rint(bunch.images * (255 / 16))[:, None], bunch.target))
