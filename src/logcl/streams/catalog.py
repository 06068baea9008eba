"""The named data sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from logcl.core.errors import BadSettings
from logcl.core.progress import Progress
from logcl.core.settings import ImageShape
from logcl.streams.cache import Blueprint, Decoded, cached, fingerprint
from logcl.streams.cifar100 import plan_cifar100
from logcl.streams.digits import plan_digits, plan_mnist
from logcl.streams.omniglot import by_alphabet, first_characters, plan_omniglot
from logcl.streams.sources import SOURCES, Files, Source

_PREFIX = "dataset:"


@dataclass(frozen=True)
class Named:
    """A named data set and how it is cut into tasks."""

    name: str
    summary: str
    tasks: int
    image_shape: ImageShape
    plan: Callable[[Files, Progress], Blueprint]
    """Reads the files and checks them; a DataError if they are damaged."""
    source: Source | None = None
    """The files it is read from; None if it comes with scikit-learn."""
    view: Callable[[Decoded], Decoded] = lambda data: data
    """Chooses samples and classes, where several data sets are read from the same files."""
    order_by_seed: bool = False
    """Whether the seed decides the order in which classes arrive."""

    def load(self, data_dir: Path | None, progress: Progress, *, rebuild: bool = False) -> Decoded:
        """The decoded data set, from the cache unless `rebuild`; a DataError if its files are missing."""
        files = self.source.find(data_dir) if self.source else {}
        name = self.source.name if self.source else self.name
        mark = fingerprint(files.values())
        return self.view(cached(name, mark, partial(self.plan, files, progress), rebuild=rebuild))


CATALOG = {
    entry.name: entry
    for entry in (
        Named("digits", "scikit-learn's handwritten digits, 5 tasks of 2", 5, (1, 8, 8), plan_digits),
        Named("mnist", "handwritten digits, 5 tasks of 2", 5, (1, 28, 28), plan_mnist, SOURCES["mnist"]),
        Named(
            "omniglot",
            "50 alphabets, 10 tasks of 5",
            10,
            (1, 28, 28),
            plan_omniglot,
            SOURCES["omniglot"],
            by_alphabet,
        ),
        Named(
            "omniglot-100",
            "300 characters, 100 tasks of 3",
            100,
            (1, 28, 28),
            plan_omniglot,
            SOURCES["omniglot"],
            first_characters,
        ),
        Named(
            "cifar100",
            "colour photographs of 100 kinds of objects, 20 tasks of 5, class order by seed",
            20,
            (3, 32, 32),
            plan_cifar100,
            SOURCES["cifar100"],
            order_by_seed=True,
        ),
    )
}


def resolve(source: str | Path | Named) -> Named | Path:
    """The named data set or the path that a source refers to.

    `dataset:digits` is always the data set, `./digits` or a Path always the path. Plain `digits` is the data
    set, and refused where a path of that name exists.
    """
    if not isinstance(source, str):
        return source
    if source.startswith(_PREFIX):
        return named(source.removeprefix(_PREFIX))
    if source not in CATALOG:
        return Path(source)
    if os.path.lexists(source):
        raise BadSettings(
            f"{source} is a named data set, but a path of that name exists too; write {_PREFIX}{source} for "
            f"the data set or ./{source} for the path"
        )
    return CATALOG[source]


def named(name: str) -> Named:
    """The data set of that name."""
    if name not in CATALOG:
        raise BadSettings(f"there is no data set {name!r}; choose one of: {', '.join(CATALOG)}")
    return CATALOG[name]
