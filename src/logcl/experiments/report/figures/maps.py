"""Heat maps: accuracy on each task after each task, and confusion of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, PowerNorm, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Box, Drawing, Size, styled
from logcl.experiments.report.study import Runs

PRINTED = 12
"""Values are printed in the cells up to this number of rows and columns."""
MOST_CLASSES = 30
"""A confusion matrix of more classes is unreadable; tables replace it."""
_MOST_TASKS = 100
_COLOURS = colormaps["cividis"].resampled(20)


@styled()
def matrix(runs: Runs) -> Drawing | None:
    """Rows: after which task; columns: accuracy on which task. None if never evaluated."""
    result = runs.first
    rows = _thinned([t for t, row in enumerate(result.accuracy_matrix) if row is not None])
    columns = _thinned(range(len(result.tasks)))
    cells = {
        (y, x): value
        for y, after in enumerate(rows)
        for x, task in enumerate(columns)
        if task <= after and (value := (result.accuracy_matrix[after] or ())[task]) is not None
    }
    if not cells:
        return None
    large = len(columns) > 30
    size: Size = "medium" if large else "narrow"
    figure = canvas.sheet(size, canvas.grown(len(rows), 0.3, 0.35, 4.7 if large else 3.5, 0.95))
    axes = figure.add_subplot()
    scale = Normalize(0, 1)
    printed = {cell: f"{100 * v:.0f}" for cell, v in cells.items()} if len(columns) <= PRINTED else {}
    _cells(axes, cells, scale, printed)
    _frame(axes, len(columns), len(rows))
    for axis, tasks in ((axes.xaxis, columns), (axes.yaxis, rows)):
        shown = canvas.round_ones([t + 1 for t in tasks], 12)
        axis.set_ticks([k + 0.5 for k in shown], [str(tasks[k] + 1) for k in shown])
    axes.set(xlabel="accuracy on task", ylabel="after task")
    _bar(figure, axes, scale)
    last = [v for (y, _), v in cells.items() if y == len(rows) - 1]
    return Drawing(
        f"matrix-{canvas.slug(runs.label)}",
        f"{runs.label}, seed {result.seed}",
        f"Accuracy on each task after each task, {runs.label}: after the last task between "
        f"{100 * min(last):.1f} % and {100 * max(last):.1f} %, {100 * np.mean(last):.1f} % on average.",
        figure,
        hover={
            "cells": tuple(
                f"after task {rows[y] + 1}, on task {columns[x] + 1}: {100 * v:.1f} %"
                for (y, x), v in cells.items()
            )
        },
        size=size,
    )


@styled()
def confusion(runs: Runs) -> Drawing | None:
    """Rows: true class; columns: predicted. None without counts or above `MOST_CLASSES` classes."""
    result = runs.first
    names, size = result.classes, len(result.classes)
    if not result.confusion or size > MOST_CLASSES:
        return None
    counts = {(true, predicted): count for true, predicted, count in result.confusion}
    totals = np.zeros(size, dtype=np.int64)
    for (true, _), count in counts.items():
        totals[true] += count
    cells = {(true, predicted): count / totals[true] for (true, predicted), count in counts.items()}
    longest = max(len(canvas.shortened(name, 12)) for name in names)
    figure = canvas.sheet(
        "narrow", canvas.grown(size, 0.27, 0.8, 3.6, 0.95 + (0.07 * longest if longest > 2 else 0))
    )
    axes = figure.add_subplot()
    scale = PowerNorm(0.5, 0, 1)  # mistakes are rare: a linear scale would hide them
    _cells(axes, cells, scale, {c: str(n) for c, n in counts.items()} if size <= PRINTED else {})
    short = [canvas.shortened(name, 12) for name in names]
    _frame(axes, size, size)
    axes.set_xticks(np.arange(size) + 0.5, short)
    axes.set_yticks(np.arange(size) + 0.5, short)
    axes.tick_params(axis="x", labelrotation=90 if longest > 2 else 0)
    axes.tick_params(labelsize=10 if size <= 15 else 7)
    axes.set(xlabel="predicted class", ylabel="true class")
    _bar(figure, axes, scale)
    wrong = sorted(((n, pair) for pair, n in counts.items() if pair[0] != pair[1]), reverse=True)
    worst = (
        f"most often {names[wrong[0][1][0]]} is predicted as {names[wrong[0][1][1]]}, {wrong[0][0]} times"
        if wrong
        else "there are no mistakes"
    )
    return Drawing(
        f"confusion-{canvas.slug(runs.label)}",
        f"{runs.label}, seed {result.seed}",
        f"Predictions by true class, {runs.label}: {worst}; "
        f"{sum(n for n, _ in wrong)} of {totals.sum()} are wrong.",
        figure,
        hover={
            "cells": tuple(
                f"{names[true]} predicted as {names[predicted]}: {n} of {totals[true]}"
                if true != predicted
                else f"{names[true]}: {n} of {totals[true]} correct"
                for (true, predicted), n in counts.items()
            )
        },
    )


def _thinned(numbers: Sequence[int]) -> list[int]:
    """At most `_MOST_TASKS` of them, evenly spaced, including the last."""
    if len(numbers) <= _MOST_TASKS:
        return list(numbers)
    return [numbers[k] for k in np.linspace(0, len(numbers) - 1, _MOST_TASKS).round().astype(int)]


def _cells(
    axes: Axes,
    cells: dict[tuple[int, int], float],
    scale: Normalize,
    printed: dict[tuple[int, int], str],
) -> None:
    """Draw (row, column) → value in [0, 1] as coloured cells, some with a text."""
    colours = [to_hex(_COLOURS(float(scale(value)))) for value in cells.values()]
    # Cells with numbers have gaps; others overlap slightly, to hide hairlines of background.
    side = 0.96 if printed else 1.05
    canvas.boxes(axes, [Box(x, y, side, side) for y, x in cells], colours, "cells", linewidths=0)
    for (y, x), colour in zip(cells, colours, strict=True):
        if text := printed.get((y, x)):
            size = 9 if len(text) < 4 else 7
            axes.text(
                x + 0.5, y + 0.5, text, color=canvas.on(colour), ha="center", va="center", fontsize=size
            )


def _frame(axes: Axes, columns: int, rows: int) -> None:
    """No spines or ticks; the first row on top."""
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _bar(figure: Figure, axes: Axes, scale: Normalize) -> None:
    bar = figure.colorbar(ScalarMappable(scale, _COLOURS), ax=axes, pad=0.02, fraction=0.05, aspect=25)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    bar.ax.tick_params(length=2)
