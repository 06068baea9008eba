"""LogCLClassifier beside scikit-learn's own classifiers: on all data at once, and class by class.

    python bench/estimator.py

Prints Markdown, stored in results/bench/estimator.md.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from logcl import LogCLClassifier
from logcl.core.text import human_bytes, spread

FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)


def data_sets() -> dict[str, tuple[np.ndarray, np.ndarray, LogCLClassifier]]:
    """X, y and an estimator that knows what X is."""
    table = LogCLClassifier(random_state=0)
    images, labels = load_digits(return_X_y=True)
    as_images = LogCLClassifier(image_shape=(1, 8, 8), random_state=0)
    return {
        "iris": (*load_iris(return_X_y=True), table),
        "wine": (*load_wine(return_X_y=True), table),
        "breast cancer": (*load_breast_cancer(return_X_y=True), table),
        "digits, as a table": (images, labels, table),
        "digits, as images": (np.rint(images / 16 * 255).astype(np.uint8), labels, as_images),
    }


def main() -> None:
    """Print both tables."""
    warnings.filterwarnings("ignore", module="sklearn")  # a rival that does not converge warns
    once, by_class = [], []
    for name, (X, y, ours) in data_sets().items():
        rivals = [
            make_pipeline(StandardScaler(), MLPClassifier(max_iter=400, random_state=0)),
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        ]
        scores = [at_once(estimator, X, y) for estimator in (ours, *rivals)]
        memory = clone(ours).fit(X, y).memory_
        kept = f"{human_bytes(memory.nbytes())} | {human_bytes(X.nbytes)} {X.dtype}"
        once.append(f"| {name} | {len(X):,} x {X.shape[1]} | {cells(scores)} | {kept} |")
        network = MLPClassifier(random_state=0)
        streams = [class_by_class(ours, X, y, 1), class_by_class(network, X, y, 200)]
        by_class.append(f"| {name} | {len(np.unique(y))} | {cells(streams)} |")
        print(once[-1], by_class[-1], sep="\n", file=sys.stderr, flush=True)
    print("All samples at once, accuracy %:\n")
    print("| data | samples | LogCLClassifier | MLPClassifier | LogisticRegression | memory | raw |")
    print("|---|---|---|---|---|---|---|")
    print(*once, sep="\n")
    print("\nOne class after the other with `partial_fit`, accuracy % on all classes:\n")
    print("| data | tasks | LogCLClassifier | MLPClassifier |")
    print("|---|---|---|---|")
    print(*by_class, sep="\n")


def at_once(estimator: BaseEstimator, X: np.ndarray, y: np.ndarray) -> list[float]:
    return [
        clone(estimator).fit(X[train], y[train]).score(X[test], y[test]) for train, test in FOLDS.split(X, y)
    ]


def class_by_class(estimator: BaseEstimator, X: np.ndarray, y: np.ndarray, epochs: int) -> list[float]:
    """Accuracy per fold. A network without a memory trains `epochs` times per task, on scaled columns."""
    found = []
    for train, test in FOLDS.split(X, y):
        learner, x = clone(estimator), X
        if epochs > 1:
            x = StandardScaler().fit(X[train]).transform(X)
        for label in np.unique(y):
            mine = train[y[train] == label]
            for _ in range(epochs):
                learner.partial_fit(x[mine], y[mine], classes=np.unique(y))
        found.append(learner.score(x[test], y[test]))
    return found


def cells(scores: list[list[float]]) -> str:
    return " | ".join(spread([100 * score for score in folds], 1) for folds in scores)


if __name__ == "__main__":
    main()
