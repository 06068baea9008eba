"""Lines: accuracy, bytes and seconds after each task, one per method, its standard error as a band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from logcl.core.text import human_bytes, human_seconds
from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Drawing, Size, styled
from logcl.experiments.report.study import Runs, Study
from logcl.experiments.result import TaskRecord
from logcl.experiments.table import standard_error

_WIDE_RANGE = 30
"""Lines that end further apart than this factor are drawn on a logarithmic axis."""
_FEW = 8
"""More methods than this need a larger figure."""


class Line(NamedTuple):
    """A line through points, each with the standard error of y, or 0."""

    label: str
    x: NDArray[Any]
    y: NDArray[np.float64]
    error: NDArray[np.float64]

    def above_zero(self) -> Line:
        """The points that a logarithmic axis can show."""
        positive = self.y > 0
        return Line(self.label, self.x[positive], self.y[positive], self.error[positive])


def plot(
    axes: Axes,
    lines: Sequence[Line],
    texts: tuple[str, str],
    x: Callable[[float], str],
    y: Callable[[float], str],
    look: Callable[[int, str], dict[str, Any]],
) -> tuple[dict[str, tuple[str, ...]], str]:
    """Draw lines; returns the hover texts of their points, and where they end.

    `texts` describe a point and an end with {label}, {x} and {y}, written by `x` and `y`; `look` gives
    arguments of matplotlib for the number and label of a line.
    """
    hover: dict[str, tuple[str, ...]] = {}
    ends = []
    for number, (label, xs, ys, errors) in enumerate(lines):
        if not len(xs):
            continue  # its colour stays reserved
        gid, colour = f"{canvas.HIT}{number}", canvas.colour(number)
        marker = canvas.MARKERS[number % len(canvas.MARKERS)]
        axes.plot(xs, ys, color=colour, marker=marker, **look(number, label))
        axes.plot(xs, ys, "o", color=colour, markersize=11, alpha=0, gid=gid, zorder=4)
        if errors.any():
            axes.fill_between(xs, ys - errors, ys + errors, color=colour, alpha=0.2, lw=0)
        written = [
            y(mean) + (f" ± {y(error)}" if error else "") for mean, error in zip(ys, errors, strict=True)
        ]
        points = zip(map(x, xs), written, strict=True)
        hover[gid] = tuple(texts[0].format(label=label, x=at, y=value) for at, value in points)
        ends.append(texts[1].format(label=label, x=x(xs[-1]), y=y(ys[-1])))
    return hover, canvas.listed(ends)


class Measure(NamedTuple):
    """What is shown after each task."""

    title: str
    unit: str
    of: Callable[[TaskRecord], float | None]
    """None where it was not measured."""
    written: Callable[[float], str]
    caption: str


def _accuracy(task: TaskRecord) -> float | None:
    return None if task.accuracy is None else 100 * task.accuracy


def _seconds(task: TaskRecord) -> float | None:
    return sum(s for phase, s in task.seconds.items() if phase != "other") if task.seconds else None


MEASURES = {
    "accuracy": Measure(
        "Accuracy after each task", "accuracy %", _accuracy, "{:.1f} %".format,
        "On the test samples of all classes seen so far, without task labels.",
    ),
    "memory": Measure(
        "Bytes kept after each task", "bytes kept", lambda task: task.memory_bytes, human_bytes,
        "Everything a method must keep to continue with the next task. Dotted: size of the raw samples.",
    ),
    "seconds": Measure(
        "Seconds per task", "seconds", _seconds, human_seconds,
        "Absorbing the task and training the classifier, which is trained only where it is evaluated.",
    ),
}  # fmt: skip


def averaged(runs: Runs, of: Callable[[TaskRecord], float | None]) -> Line:
    """A measure after each task, averaged over seeds; tasks without a value are left out."""
    known = {}
    for number, tasks in enumerate(zip(*(result.tasks for result in runs.results), strict=True), 1):
        if values := [value for task in tasks if (value := of(task)) is not None]:
            known[number] = values
    mean = np.array([np.mean(values) for values in known.values()], dtype=np.float64)
    error = np.array([standard_error(values) for values in known.values()], dtype=np.float64)
    return Line(runs.label, np.array(list(known), dtype=np.int64), mean, error)


@styled()
def over_tasks(study: Study, name: str) -> Drawing | None:
    """One of `MEASURES`, a line per method, its standard error as a band; None unless one has two points."""
    title, unit, of, written, caption = MEASURES[name]
    lines = [averaged(runs, of) for runs in study.methods]
    if max(len(line.x) for line in lines) < 2:
        return None
    size: Size = "narrow" if len(lines) <= _FEW else "medium"
    columns = 2 if size == "narrow" else 3
    figure = canvas.sheet(size, (2.9 if size == "narrow" else 3.7) + 0.22 * -(-len(lines) // columns))
    axes = figure.add_subplot()
    ends = [float(line.y[-1]) for line in lines if len(line.y)]
    first = study.methods[0].first
    if name == "memory":
        ends.append(first.raw_bytes)
    if min(ends) > 0 and max(ends) / min(ends) > _WIDE_RANGE and name != "accuracy":
        axes.set_yscale("log")
        axes.minorticks_off()
        lines = [line.above_zero() for line in lines]

    def look(number: int, label: str) -> dict[str, Any]:
        marker = {"label": canvas.shortened(label, 24), "markersize": 5.0 if study.tasks <= 25 else 2.5}
        return marker | ({"linewidth": 1.2, "zorder": 2} if number else {"linewidth": 2, "zorder": 3})

    texts = "{label}, after task {x}: {y}", "{label} ends at {y}"
    hover, reached = plot(axes, lines, texts, str, written, look)
    if name == "memory":
        raw = np.cumsum([task.samples for task in first.tasks]) * (first.raw_bytes / max(first.samples, 1))
        axes.plot(
            range(1, len(raw) + 1), raw, color=canvas.GREY, linestyle=":", label="raw samples", zorder=1
        )
    tick = written if name == "memory" else "{:g}".format
    axes.yaxis.set_major_formatter(lambda value, _: tick(value))
    axes.set_xticks([k + 1 for k in canvas.round_ones(range(1, study.tasks + 1), 10)])
    axes.set(xlabel="task", ylabel=unit)
    axes.grid(axis="y")
    figure.legend(loc="outside lower center", ncols=columns, handlelength=2.5)
    if any(line.error.any() for line in lines):
        caption += " Lines are means over seeds, bands their standard errors."
    return Drawing(name, title, f"{title}: {reached}.", figure, caption, hover, size)
