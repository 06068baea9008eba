"""The 1,797 handwritten 8x8 digits that come with scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np

from logcl.core.progress import Progress
from logcl.streams.cache import Blueprint, Decoded, cached, fingerprint
from logcl.streams.stream import Task


def load_digits(data_dir: Path | None, progress: Progress, *, rebuild: bool = False) -> Decoded:
    """All digits as training samples: the test set is split off by the seed."""
    del data_dir, progress
    # Cached because importing scikit-learn takes longer than everything else here.
    return cached("digits", fingerprint([], "digits", version("scikit-learn")), _plan, rebuild=rebuild)


def _plan() -> Blueprint:
    from sklearn.datasets import load_digits as load

    bunch = load()

    def fill(parts: Mapping[str, Task]) -> None:
        parts["train"].x[:, 0] = np.rint(bunch.images * (255 / 16))
        parts["train"].y[:] = bunch.target

    return Blueprint(tuple("0123456789"), (1, 8, 8), {"train": len(bunch.target)}, fill)
