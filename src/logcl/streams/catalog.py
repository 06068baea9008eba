"""The named data sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from logcl.core.errors import BadSettings
from logcl.core.progress import Progress
from logcl.core.settings import ImageShape
from logcl.streams.cache import Decoded
from logcl.streams.cifar100 import find_cifar100, load_cifar100
from logcl.streams.digits import load_digits
from logcl.streams.mnist import find_mnist, load_mnist
from logcl.streams.omniglot import find_omniglot, load_omniglot, load_omniglot_100
from logcl.streams.sources import SOURCES, Files, Source


class Load(Protocol):
    """Finds and decodes a data set."""

    def __call__(self, data_dir: Path | None, progress: Progress, *, rebuild: bool = False) -> Decoded:
        """Use the cache unless `rebuild`; a DataError if the files are missing or damaged."""


@dataclass(frozen=True)
class Named:
    """A named data set and how it is cut into tasks."""

    name: str
    summary: str
    tasks: int
    image_shape: ImageShape
    load: Load
    source: Source | None = None
    """The files it is read from; None if it comes with scikit-learn."""
    recognise: Callable[[Path], Files | None] = lambda _folder: None
    """Finds these files in a folder; None if any is missing."""
    order_by_seed: bool = False
    """Whether the seed decides the order in which classes arrive."""


CATALOG = {
    entry.name: entry
    for entry in (
        Named("digits", "scikit-learn's handwritten digits, 5 tasks of 2", 5, (1, 8, 8), load_digits),
        Named(
            "mnist",
            "handwritten digits, 5 tasks of 2",
            5,
            (1, 28, 28),
            load_mnist,
            SOURCES["mnist"],
            find_mnist,
        ),
        Named(
            "omniglot",
            "50 alphabets, 10 tasks of 5",
            10,
            (1, 28, 28),
            load_omniglot,
            SOURCES["omniglot"],
            find_omniglot,
        ),
        Named(
            "omniglot-100",
            "300 characters, 100 tasks of 3",
            100,
            (1, 28, 28),
            load_omniglot_100,
            SOURCES["omniglot"],
            find_omniglot,
        ),
        Named(
            "cifar100",
            "colour photographs of 100 kinds of objects, 20 tasks of 5, class order by seed",
            20,
            (3, 32, 32),
            load_cifar100,
            SOURCES["cifar100"],
            find_cifar100,
            order_by_seed=True,
        ),
    )
}


def named(name: str) -> Named:
    """The data set of that name."""
    if name not in CATALOG:
        raise BadSettings(f"there is no data set {name!r}; choose one of: {', '.join(CATALOG)}")
    return CATALOG[name]
