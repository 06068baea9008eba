"""How coarsely features can be rounded: probes on the first task measure what each step costs in accuracy.

A probe is a linear classifier trained on rounded features and evaluated on exact ones. A first task often has
two classes, which any probe tells apart, so each class is divided into clusters, which are harder.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logcl.codecs.coding import entropy
from logcl.codecs.features.rounding import STEP, rounded
from logcl.core.features import ZERO
from logcl.core.progress import Progress
from logcl.core.threads import one_thread_per_product
from logcl.core.trials import Trial

_STEPS = (24.0, 20.0, 17.0, 14.0)
_LOSS = 0.01  # accuracy that rounding may cost
_SAMPLES, _FEWEST = 1000, 60  # probes are trained on this many at most; fewer say too little
_REPEATS, _FOLDS = 5, 4
_CLUSTERS, _PER_CLUSTER = 20, 15  # in all, about; samples of each, at least
_RIDGE = 1.0

Floats = NDArray[np.float32]


def choose_step(
    x: NDArray[np.uint8], y: NDArray[np.int64], progress: Progress
) -> tuple[float, tuple[Trial, ...]]:
    """The coarsest step that costs a probe at most a point of accuracy, and all that were tried, it first.

    x: features (n, 1, 1, D) as bytes; y: class numbers (n,).
    """
    some = np.linspace(0, len(x) - 1, min(len(x), _SAMPLES)).round().astype(np.intp)
    bytes_, y = x[some], y[some]
    exact = bytes_.reshape(len(some), -1).astype(np.float32) - ZERO
    coarse = {step: rounded(bytes_, step) * np.float32(step) for step in _STEPS}
    lost = dict.fromkeys(_STEPS, 0.0)
    if len(some) >= _FEWEST:
        total = _REPEATS * (1 + len(_STEPS))
        with progress.track("choosing the step", total) as advance, one_thread_per_product():
            for seed in range(_REPEATS):
                folds = np.array_split(np.random.default_rng(seed).permutation(len(some)), _FOLDS)
                targets = _clustered(exact, y, seed)
                before = _accuracy(exact, exact, targets, folds)
                advance()
                for step in _STEPS:
                    lost[step] += (before - _accuracy(coarse[step], exact, targets, folds)) / _REPEATS
                    advance()
        best = next((step for step in _STEPS if lost[step] <= _LOSS), _STEPS[-1])
    else:
        best = STEP
    trials = [_trial(step, lost[step], bytes_, exact, coarse[step]) for step in _STEPS]
    trials.sort(key=lambda trial: trial.codec != _name(best))
    return best, tuple(trials)


def _name(step: float) -> str:
    return f"features in steps of {step:g}"


def _trial(step: float, lost: float, x: NDArray[np.uint8], exact: Floats, coarse: Floats) -> Trial:
    error = float(np.square((exact - coarse) / 255).mean())
    return Trial(
        codec=_name(step), bytes_per_sample=entropy.mean_bytes(rounded(x, step)),
        psnr=-10 * math.log10(max(error, 1e-6)), loss=lost,
    )  # fmt: skip


def _clustered(x: Floats, y: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Cluster numbers (n,): each class divided into so many that there are about twenty in all."""
    from sklearn.cluster import KMeans

    classes = np.unique(y)
    found, first = np.empty(len(y), np.int64), 0
    for label in classes:
        rows = np.flatnonzero(y == label)
        count = min(max(_CLUSTERS // len(classes), 1), max(len(rows) // _PER_CLUSTER, 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fewer distinct samples than clusters
            means = KMeans(count, n_init=1, max_iter=20, random_state=seed).fit(x[rows])
        found[rows] = first + means.labels_
        first += count
    return found


def _accuracy(
    trained: Floats, tested: Floats, y: NDArray[np.int64], folds: Sequence[NDArray[np.int64]]
) -> float:
    """Cross-validated accuracy of ridge regression to one-hot targets, in its dual form."""
    targets = np.eye(int(y.max()) + 1, dtype=np.float32)[y]
    hits = 0
    for fold in folds:
        others = np.setdiff1d(np.arange(len(y)), fold)
        mean, deviation = trained[others].mean(axis=0), trained[others].std(axis=0) + 2
        known, new = (trained[others] - mean) / deviation, (tested[fold] - mean) / deviation
        products = known @ known.T / known.shape[1]
        ridge = _RIDGE * np.eye(len(others), dtype=np.float32)
        weights = np.linalg.solve(products + ridge, targets[others] - targets[others].mean(axis=0))
        scores = new @ known.T / known.shape[1] @ weights + targets[others].mean(axis=0)
        hits += int((scores.argmax(axis=1) == y[fold]).sum())
    return hits / len(y)
