"""Heat maps of accuracy by task and of confused classes; histograms of reconstruction errors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, PowerNorm, to_hex
from matplotlib.ticker import LogLocator, NullLocator

from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Drawing, Size, styled
from logcl.experiments.report.study import Runs
from logcl.experiments.result import ERROR_BINS, GenerationError, pooled

PRINTED = 12
"""Values are printed in the cells up to this number of rows and columns."""
MOST_CLASSES = 30
"""A confusion matrix of more classes is unreadable; tables replace it."""
MOST_ROWS = 10
"""Histograms of more generations than this are pooled into stages."""
_COLOURS = colormaps["cividis"].resampled(20)


class Cell(NamedTuple):
    """A cell of a map: its place, value in [0, 1], text, and text when hovering over it."""

    row: int
    column: int
    value: float
    text: str
    hover: str


def matrix(runs: Runs) -> Drawing | None:
    """Rows: after which task; columns: accuracy on which task. None if never evaluated."""
    accuracy = runs.first.accuracy_matrix
    rows = canvas.thinned([t for t, row in enumerate(accuracy) if row is not None])
    columns = canvas.thinned(range(len(runs.first.tasks)))
    cells = []
    for y, after in enumerate(rows):
        for x, task in enumerate(columns):
            if task <= after and (value := (accuracy[after] or ())[task]) is not None:
                hover = f"after task {after + 1}, on task {task + 1}: {100 * value:.1f} %"
                cells.append(Cell(y, x, value, f"{100 * value:.0f}", hover))
    if not cells:
        return None
    last = [cell.value for cell in cells if cell.row == len(rows) - 1]
    alternative = (
        f"Accuracy on each task after each task, {runs.label}: after the last task between "
        f"{100 * min(last):.1f} % and {100 * max(last):.1f} %, {100 * np.mean(last):.1f} % on average."
    )
    labels = {"after task": _numbered(rows), "accuracy on task": _numbered(columns)}
    large = len(columns) > 30
    height = canvas.grown(len(rows), 0.3, 0.35, 4.7 if large else 3.5, 0.95)
    size: Size = "medium" if large else "narrow"
    return _map("matrix", runs, alternative, cells, Normalize(0, 1), labels, height, size)


def confusion(runs: Runs) -> Drawing | None:
    """Rows: true class; columns: predicted. None without counts or above `MOST_CLASSES` classes."""
    names, counts = runs.first.classes, runs.first.confusion
    if not counts or len(names) > MOST_CLASSES:
        return None
    totals = np.zeros(len(names), dtype=np.int64)
    for true, _, n in counts:
        totals[true] += n
    cells = []
    for true, predicted, n in counts:
        hover = f"{names[true]} predicted as {names[predicted]}: {n} of {totals[true]}"
        right = f"{names[true]}: {n} of {totals[true]} correct"
        share = n / totals[true]
        cells.append(Cell(true, predicted, share, str(n), right if true == predicted else hover))
    wrong = sorted(((n, true, predicted) for true, predicted, n in counts if true != predicted), reverse=True)
    worst = "there are no mistakes"
    for most, true, predicted in wrong[:1]:
        worst = f"most often {names[true]} is predicted as {names[predicted]}, {most} times"
    alternative = (
        f"Predictions by true class, {runs.label}: {worst}; "
        f"{sum(n for n, *_ in wrong)} of {totals.sum()} are wrong."
    )
    short = [canvas.shortened(name, 12) for name in names]
    long = max(map(len, short)) > 2
    height = canvas.grown(len(names), 0.27, 0.8, 3.6, 0.95 + (0.07 * max(map(len, short)) if long else 0))
    scale = PowerNorm(0.5, 0, 1)  # mistakes are rare: a linear scale would hide them
    labels = {"true class": short, "predicted class": short}
    drawing = _map("confusion", runs, alternative, cells, scale, labels, height)
    axes = drawing.figure.axes[0]
    axes.tick_params(axis="x", labelrotation=90 if long else 0)
    axes.tick_params(labelsize=10 if len(names) <= 15 else 7)
    return drawing


def _numbered(tasks: Sequence[int]) -> list[str]:
    """Labels of tasks, counted from 1; if there are many, only round numbers."""
    shown = set(canvas.round_ones([task + 1 for task in tasks], 12))
    return [str(task + 1) if k in shown else "" for k, task in enumerate(tasks)]


@styled()
def _map(
    name: str,
    runs: Runs,
    alternative: str,
    cells: Sequence[Cell],
    scale: Normalize,
    labels: dict[str, list[str]],
    height: float,
    size: Size = "narrow",
) -> Drawing:
    """Coloured cells; `labels` are those of the rows and of the columns, by the name of the axis."""
    figure = canvas.sheet(size, height)
    axes = figure.add_subplot()
    (_, rows), (_, columns) = labels.items()
    printed = len(columns) <= PRINTED
    colours = [to_hex(_COLOURS(float(scale(cell.value)))) for cell in cells]
    # Cells with numbers have gaps; others overlap slightly, to hide hairlines of background.
    side = 0.96 if printed else 1.05
    canvas.boxes(axes, [(c.column, c.row, side, side) for c in cells], colours, "cells", linewidths=0)
    for cell, colour in zip(cells, colours, strict=True) if printed else ():
        x, y, points = cell.column + 0.5, cell.row + 0.5, 9 if len(cell.text) < 4 else 7
        axes.text(x, y, cell.text, color=canvas.on(colour), ha="center", va="center", fontsize=points)
    # No spines or ticks; the first row on top.
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for axis, (title, texts) in zip((axes.yaxis, axes.xaxis), labels.items(), strict=True):
        shown = [k for k, text in enumerate(texts) if text]
        axis.set_ticks([k + 0.5 for k in shown], [texts[k] for k in shown])
        axis.set_label_text(title)
    bar = figure.colorbar(ScalarMappable(scale, _COLOURS), ax=axes, pad=0.02, fraction=0.05, aspect=25)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    bar.ax.tick_params(length=2)
    hover = {"cells": tuple(cell.hover for cell in cells)}
    return Drawing(
        f"{name}-{canvas.slug(runs.label)}", runs.title, alternative, figure, hover=hover, size=size
    )


def stage(generation: int) -> int:
    """Generations 0, 1, 2 to 3, 4 to 7, … have the same stage; the buffer, -1, has its own."""
    return generation.bit_length() if generation >= 0 else -1


def stages(found: Sequence[GenerationError]) -> list[tuple[str, list[GenerationError]]]:
    """Generations by displayed name: each one separately, or by stage if there are many."""
    many = len(found) > MOST_ROWS
    named = []
    for _, members in groupby(found, lambda e: stage(e.generation) if many else e.generation):
        mine = list(members)
        first, last = mine[0].generation, mine[-1].generation
        named.append((f"{first}" if first == last else f"{first} to {last}", mine))
    return named


def errors(methods: Sequence[Runs]) -> tuple[Drawing, ...]:
    """One figure per method that has histograms, from its first seed, all with the same axis."""
    # Without the buffer, whose samples are still exact.
    known = [
        (m, [e for e in m.first.reconstruction if e.generation >= 0 and any(e.histogram)]) for m in methods
    ]
    found = [(runs, mine) for runs, mine in known if mine]
    if not found:
        return ()
    used = np.flatnonzero(np.any([error.histogram for _, mine in found for error in mine], axis=0))
    limits = ERROR_BINS[max(used[0] - 1, 0)], ERROR_BINS[min(used[-1] + 2, len(ERROR_BINS) - 1)]
    return tuple(_histograms(runs, mine, limits) for runs, mine in found)


@styled()
def _histograms(runs: Runs, found: Sequence[GenerationError], limits: tuple[float, float]) -> Drawing:
    """One row per generation or stage: share of samples by error."""
    groups = [(name, pooled(members)) for name, members in stages(found)]
    figure = canvas.sheet("narrow", 0.62 * len(groups) + 0.75)
    rows = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    hover = {}
    widths = np.diff(ERROR_BINS)
    for number, (axes, (name, error)) in enumerate(zip(rows, groups, strict=True)):
        shares = np.array(error.histogram) / error.samples
        filled = np.flatnonzero(shares)
        gid = f"generation-{canvas.slug(name)}"
        canvas.boxes(
            axes,
            [(ERROR_BINS[k], 0, widths[k], shares[k]) for k in filled],
            [canvas.colour(number)] * len(filled),
            gid,
            linewidths=0,
            antialiaseds=False,
        )
        axes.axvline(max(error.mse, limits[0]), color=canvas.INK, linewidth=1.2, linestyle="--", zorder=3)
        axes.set(xscale="log", xlim=limits, ylim=(0, 1.05 * shares.max()), yticks=[])
        axes.spines["left"].set_visible(False)
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
        hover[gid] = tuple(
            f"generation {name}: {error.histogram[k]:,} of {error.samples:,} samples have an "
            f"error of {ERROR_BINS[k]:.1e} to {ERROR_BINS[k + 1]:.1e}"
            for k in filled
        )
    bottom = rows[-1].xaxis
    bottom.set_major_formatter("{x:g}")
    decades = np.log10(limits[1] / limits[0])
    bottom.set_major_locator(LogLocator(subs=(1.0, 3.0) if decades < 3 else (1.0,)))
    bottom.set_minor_locator(NullLocator())
    rows[-1].set_xlabel("mean squared error per sample")
    figure.supylabel("generation", fontsize=10)
    means = [f"{error.mse:.2g} in generation {name}" for name, error in groups]
    return Drawing(
        f"errors-{canvas.slug(runs.label)}",
        runs.title,
        f"Reconstruction errors by generation, {runs.label}: the mean is {canvas.listed(means)}.",
        figure,
        hover=hover,
    )
