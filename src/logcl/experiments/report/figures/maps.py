"""Heat maps: accuracy on each task after each task, and confusion of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, PowerNorm, to_hex
from matplotlib.ticker import FuncFormatter

from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Drawing, Size, styled
from logcl.experiments.report.study import Runs

PRINTED = 12
"""Values are printed in the cells up to this number of rows and columns."""
MOST_CLASSES = 30
"""A confusion matrix of more classes is unreadable; tables replace it."""
_MOST_TASKS = 100
_COLOURS = colormaps["cividis"].resampled(20)


def matrix(runs: Runs) -> Drawing | None:
    """Rows: after which task; columns: accuracy on which task. None if never evaluated."""
    accuracy = runs.first.accuracy_matrix
    rows = _thinned([t for t, row in enumerate(accuracy) if row is not None])
    columns = _thinned(range(len(runs.first.tasks)))
    cells = {
        (y, x): value
        for y, after in enumerate(rows)
        for x, task in enumerate(columns)
        if task <= after and (value := (accuracy[after] or ())[task]) is not None
    }
    if not cells:
        return None
    large = len(columns) > 30
    last = [v for (y, _), v in cells.items() if y == len(rows) - 1]
    return _map(
        "matrix",
        runs,
        f"Accuracy on each task after each task, {runs.label}: after the last task between "
        f"{100 * min(last):.1f} % and {100 * max(last):.1f} %, {100 * np.mean(last):.1f} % on average.",
        cells,
        Normalize(0, 1),
        [f"{100 * v:.0f}" for v in cells.values()] if len(columns) <= PRINTED else [],
        [
            f"after task {rows[y] + 1}, on task {columns[x] + 1}: {100 * v:.1f} %"
            for (y, x), v in cells.items()
        ],
        ("after task", _numbered(rows)),
        ("accuracy on task", _numbered(columns)),
        canvas.grown(len(rows), 0.3, 0.35, 4.7 if large else 3.5, 0.95),
        "medium" if large else "narrow",
    )


def confusion(runs: Runs) -> Drawing | None:
    """Rows: true class; columns: predicted. None without counts or above `MOST_CLASSES` classes."""
    names, size = runs.first.classes, len(runs.first.classes)
    if not runs.first.confusion or size > MOST_CLASSES:
        return None
    counts = {(true, predicted): count for true, predicted, count in runs.first.confusion}
    totals = np.zeros(size, dtype=np.int64)
    for (true, _), count in counts.items():
        totals[true] += count
    short = [canvas.shortened(name, 12) for name in names]
    longest = max(map(len, short))
    wrong = sorted(((n, pair) for pair, n in counts.items() if pair[0] != pair[1]), reverse=True)
    worst = "there are no mistakes"
    if wrong:
        often, (true, predicted) = wrong[0]
        worst = f"most often {names[true]} is predicted as {names[predicted]}, {often} times"
    drawing = _map(
        "confusion",
        runs,
        f"Predictions by true class, {runs.label}: {worst}; "
        f"{sum(n for n, _ in wrong)} of {totals.sum()} are wrong.",
        {(true, predicted): count / totals[true] for (true, predicted), count in counts.items()},
        PowerNorm(0.5, 0, 1),  # mistakes are rare: a linear scale would hide them
        [str(n) for n in counts.values()] if size <= PRINTED else [],
        [
            f"{names[true]} predicted as {names[predicted]}: {n} of {totals[true]}"
            if true != predicted
            else f"{names[true]}: {n} of {totals[true]} correct"
            for (true, predicted), n in counts.items()
        ],
        ("true class", short),
        ("predicted class", short),
        canvas.grown(size, 0.27, 0.8, 3.6, 0.95 + (0.07 * longest if longest > 2 else 0)),
    )
    axes = drawing.figure.axes[0]
    axes.tick_params(axis="x", labelrotation=90 if longest > 2 else 0)
    axes.tick_params(labelsize=10 if size <= 15 else 7)
    return drawing


def _thinned(numbers: Sequence[int]) -> list[int]:
    """At most `_MOST_TASKS` of them, evenly spaced, including the last."""
    if len(numbers) <= _MOST_TASKS:
        return list(numbers)
    return [numbers[k] for k in np.linspace(0, len(numbers) - 1, _MOST_TASKS).round().astype(int)]


def _numbered(tasks: Sequence[int]) -> list[str]:
    """Labels of tasks, counted from 1; if there are many, only round numbers."""
    shown = set(canvas.round_ones([task + 1 for task in tasks], 12))
    return [str(task + 1) if k in shown else "" for k, task in enumerate(tasks)]


@styled()
def _map(
    name: str,
    runs: Runs,
    alternative: str,
    cells: dict[tuple[int, int], float],
    scale: Normalize,
    printed: Sequence[str],
    hover: Sequence[str],
    rows: tuple[str, Sequence[str]],
    columns: tuple[str, Sequence[str]],
    height: float,
    size: Size = "narrow",
) -> Drawing:
    """(row, column) → value in [0, 1] as coloured cells, with texts inside or none.

    `rows` and `columns` are the name of an axis and its labels, some of which may be empty.
    """
    figure = canvas.sheet(size, height)
    axes = figure.add_subplot()
    colours = [to_hex(_COLOURS(float(scale(value)))) for value in cells.values()]
    # Cells with numbers have gaps; others overlap slightly, to hide hairlines of background.
    side = 0.96 if printed else 1.05
    canvas.boxes(axes, [(x, y, side, side) for y, x in cells], colours, "cells", linewidths=0)
    for (y, x), colour, text in zip(cells, colours, printed, strict=False):
        size_of_text = 9 if len(text) < 4 else 7
        axes.text(
            x + 0.5, y + 0.5, text, color=canvas.on(colour), ha="center", va="center", fontsize=size_of_text
        )
    # No spines or ticks; the first row on top.
    axes.set(xlim=(0, len(columns[1])), ylim=(len(rows[1]), 0), xlabel=columns[0], ylabel=rows[0])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for axis, (_, labels) in ((axes.xaxis, columns), (axes.yaxis, rows)):
        shown = [k for k, label in enumerate(labels) if label]
        axis.set_ticks([k + 0.5 for k in shown], [labels[k] for k in shown])
    bar = figure.colorbar(ScalarMappable(scale, _COLOURS), ax=axes, pad=0.02, fraction=0.05, aspect=25)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    bar.ax.tick_params(length=2)
    name = f"{name}-{canvas.slug(runs.label)}"
    return Drawing(name, runs.title, alternative, figure, hover={"cells": tuple(hover)}, size=size)
