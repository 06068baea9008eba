"""Accuracy, bytes and seconds after each task: one line per method, its standard error as a band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from logcl.core.text import human_bytes, human_seconds
from logcl.experiments.bench.summary import standard_error
from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Drawing, Size, styled
from logcl.experiments.report.study import Runs, Study
from logcl.experiments.result import Result

_WIDE_RANGE = 30
"""Lines that end further apart than this factor are drawn on a logarithmic axis."""
_FEW = 8
"""More methods than this need a larger figure."""


@dataclass(frozen=True)
class Series:
    """A line: a measure after some of the tasks."""

    label: str
    task: NDArray[np.int64]
    """(points,) counted from 1."""
    mean: NDArray[np.float64]
    """(points,) over seeds."""
    error: NDArray[np.float64]
    """(points,) standard error of the mean."""


def series(runs: Runs, measure: Callable[[Result], Sequence[float | None]]) -> Series:
    """A measure of each task, averaged over seeds; tasks without a value are left out."""
    by_task = [
        [value for value in column if value is not None]
        for column in zip(*(measure(result) for result in runs.results), strict=True)
    ]
    known = [number for number, values in enumerate(by_task) if values]
    return Series(
        runs.label,
        np.array(known, dtype=np.int64) + 1,
        np.array([np.mean(by_task[k]) for k in known], dtype=np.float64),
        np.array([standard_error(by_task[k]) for k in known], dtype=np.float64),
    )


def accuracy(study: Study) -> Drawing | None:
    """In percent, on all classes seen so far; None unless a method was evaluated after several tasks."""

    def measure(result: Result) -> list[float | None]:
        return [None if t.accuracy is None else 100 * t.accuracy for t in result.tasks]

    return _draw(
        "accuracy", "Accuracy after each task", "accuracy %", study, measure, lambda value: f"{value:.1f} %",
        "On the test samples of all classes seen so far, without task labels.",
    )  # fmt: skip


def memory(study: Study) -> Drawing | None:
    """Bytes kept after each task, and the size of the raw samples."""
    first = study.methods[0].first
    counts = np.cumsum([task.samples for task in first.tasks])
    raw = Series(
        "raw samples",
        np.arange(1, len(counts) + 1),
        counts * (first.raw_bytes / max(int(counts[-1]), 1)),
        np.zeros(len(counts)),
    )
    return _draw(
        "memory", "Bytes kept after each task", "bytes kept", study,
        lambda result: [task.memory_bytes for task in result.tasks], human_bytes,
        "Everything a method must keep to continue with the next task. Dotted: size of the raw samples.",
        raw,
    )  # fmt: skip


def seconds(study: Study) -> Drawing | None:
    """Time to absorb each task and to train on it."""

    def measure(result: Result) -> list[float | None]:
        return [
            sum(s for phase, s in task.seconds.items() if phase != "other") if task.seconds else None
            for task in result.tasks
        ]

    return _draw(
        "seconds", "Seconds per task", "seconds", study, measure, human_seconds,
        "Absorbing the task and training the classifier, which is trained only where it is evaluated.",
    )  # fmt: skip


@styled()
def _draw(
    name: str,
    title: str,
    unit: str,
    study: Study,
    measure: Callable[[Result], Sequence[float | None]],
    written: Callable[[float], str],
    caption: str,
    raw: Series | None = None,
) -> Drawing | None:
    """One line per method; None unless one of them has two points."""
    lines = [series(runs, measure) for runs in study.methods]
    if max(len(one.task) for one in lines) < 2:
        return None
    size: Size = "narrow" if len(lines) <= _FEW else "medium"
    columns = 2 if size == "narrow" else 3
    figure = canvas.sheet(size, (2.9 if size == "narrow" else 3.7) + 0.22 * -(-len(lines) // columns))
    axes = figure.add_subplot()
    ends = [float(one.mean[-1]) for one in (*lines, *([raw] if raw else [])) if len(one.task)]
    if min(ends) > 0 and max(ends) / min(ends) > _WIDE_RANGE and unit != "accuracy %":
        axes.set_yscale("log")
        axes.minorticks_off()
        lines = [_above_zero(one) for one in lines]
    hover: dict[str, tuple[str, ...]] = {}
    for number, one in enumerate(lines):
        if not len(one.task):
            continue
        texts = [
            f"{one.label}, after task {task}: {written(mean)}" + (f" ± {written(error)}" if error else "")
            for task, mean, error in zip(one.task, one.mean, one.error, strict=True)
        ]
        hover |= canvas.line(
            axes, number, zip(one.task, one.mean, strict=True), texts,
            label=canvas.shortened(one.label, 24), markersize=5.0 if study.tasks <= 25 else 2.5,
            linewidth=1.2 if number else 2, zorder=2 if number else 3,
        )  # fmt: skip
        if one.error.any():
            band = one.mean - one.error, one.mean + one.error
            axes.fill_between(one.task, *band, color=canvas.colour(number), alpha=0.2, lw=0)
    if raw:
        axes.plot(raw.task, raw.mean, color=canvas.GREY, linestyle=":", label=raw.label, zorder=1)
    tick = written if unit == "bytes kept" else "{:g}".format
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    axes.set_xticks([k + 1 for k in canvas.round_ones(range(1, study.tasks + 1), 10)])
    axes.set(xlabel="task", ylabel=unit)
    axes.grid(axis="y")
    figure.legend(loc="outside lower center", ncols=columns, handlelength=2.5)
    reached = [f"{one.label} ends at {written(one.mean[-1])}" for one in lines if len(one.task)]
    if any(one.error.any() for one in lines):
        caption += " Lines are means over seeds, bands their standard errors."
    return Drawing(name, title, f"{title}: {canvas.listed(reached)}.", figure, caption, hover, size)


def _above_zero(one: Series) -> Series:
    """The points that a logarithmic axis can show."""
    positive = one.mean > 0
    return Series(one.label, one.task[positive], one.mean[positive], one.error[positive])
