"""Accuracy, bytes and seconds after each task: one line a method, its standard error as a band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from logcl.core.text import human_bytes, human_seconds
from logcl.experiments.report.figures.canvas import (
    COLOURS,
    GREY,
    HIT,
    MARKERS,
    Drawing,
    Size,
    listed,
    round_ones,
    sheet,
    shortened,
    styled,
)
from logcl.experiments.report.study import Runs, Study
from logcl.experiments.result import Result

_WIDE_RANGE = 30
"""Ends of lines that differ by more than this factor are drawn on a logarithmic axis."""


_FEW = 8
"""More methods than this get a larger figure."""


@dataclass(frozen=True)
class Series:
    """A line: what was measured after some of the tasks."""

    label: str
    task: NDArray[np.int64]
    """(points,) counted from 1."""
    mean: NDArray[np.float64]
    """(points,) over seeds."""
    error: NDArray[np.float64]
    """(points,) standard error of the mean; 0 for a single seed."""


def series(runs: Runs, measure: Callable[[Result], Sequence[float | None]]) -> Series:
    """Of a measure of each task; tasks that no seed was examined after are left out."""
    by_task = [
        [value for value in column if value is not None]
        for column in zip(*(measure(result) for result in runs.results), strict=True)
    ]
    known = [number for number, values in enumerate(by_task) if values]
    return Series(
        runs.label,
        np.array(known, dtype=np.int64) + 1,
        np.array([np.mean(by_task[k]) for k in known], dtype=np.float64),
        np.array([_error(by_task[k]) for k in known], dtype=np.float64),
    )


def accuracy(study: Study) -> Drawing | None:
    """In per cent, on all classes seen so far; None unless a method was examined after several tasks."""

    def measure(result: Result) -> list[float | None]:
        return [None if t.accuracy is None else 100 * t.accuracy for t in result.tasks]

    return _draw(
        "accuracy", "Accuracy after each task", "accuracy %", study, measure, lambda value: f"{value:.1f} %",
        "On the test samples of all classes seen so far, no task label given.",
    )  # fmt: skip


def memory(study: Study) -> Drawing | None:
    """Bytes kept after each task, beside what the raw samples would take."""
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
        "All that is needed to go on with the next task; the dotted line is what the raw samples would take.",
        raw,
    )  # fmt: skip


def seconds(study: Study) -> Drawing | None:
    """What each task took to absorb and to train on."""

    def measure(result: Result) -> list[float | None]:
        return [
            sum(s for phase, s in task.seconds.items() if phase != "other") if task.seconds else None
            for task in result.tasks
        ]

    return _draw(
        "seconds", "Seconds for each task", "seconds", study, measure, human_seconds,
        "Absorbing the task and training the classifier, which is trained only where it is examined.",
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
    lines = [series(runs, measure) for runs in study.methods]
    if max(len(line.task) for line in lines) < 2:
        return None
    size: Size = "narrow" if len(lines) <= _FEW else "medium"
    columns = 2 if size == "narrow" else 3
    figure = sheet(size, (2.9 if size == "narrow" else 3.7) + 0.22 * -(-len(lines) // columns))
    axes = figure.add_subplot()
    hover = {}
    ends = [float(line.mean[-1]) for line in (*lines, *([raw] if raw else [])) if len(line.task)]
    if min(ends) > 0 and max(ends) / min(ends) > _WIDE_RANGE and unit != "accuracy %":
        axes.set_yscale("log")
        axes.minorticks_off()
        lines = [_above_zero(line) for line in lines]
    for number, line in enumerate(lines):
        if not len(line.task):
            continue
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        axes.plot(
            line.task, line.mean, color=colour, marker=marker, markersize=5.0 if study.tasks <= 25 else 2.5,
            label=shortened(line.label, 24), linewidth=1.2 if number else 2, zorder=2 if number else 3,
        )  # fmt: skip
        if line.error.any():
            axes.fill_between(
                line.task, line.mean - line.error, line.mean + line.error, color=colour, alpha=0.2, lw=0
            )
        gid = f"{HIT}{number}"
        axes.plot(line.task, line.mean, "o", color=colour, markersize=11, alpha=0, gid=gid, zorder=4)
        hover[gid] = tuple(
            f"{line.label}, after task {task}: {_pm(mean, error, written)}"
            for task, mean, error in zip(line.task, line.mean, line.error, strict=True)
        )
    if raw:
        axes.plot(raw.task, raw.mean, color=GREY, linestyle=":", label=raw.label, zorder=1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, unit, written)))
    axes.set_xticks([k + 1 for k in round_ones(range(1, study.tasks + 1), 10)])
    axes.set(xlabel="task", ylabel=unit)
    axes.grid(axis="y")
    figure.legend(loc="outside lower center", ncols=columns, handlelength=2.5)
    reached = [f"{line.label} ends at {written(line.mean[-1])}" for line in lines if len(line.task)]
    return Drawing(name, title, f"{title}: {listed(reached)}.", figure, caption + _bands(lines), hover, size)


def _above_zero(line: Series) -> Series:
    """What has a place on a logarithmic axis: a task that nothing was done for took no time."""
    there = line.mean > 0
    return Series(line.label, line.task[there], line.mean[there], line.error[there])


def _tick(value: float, unit: str, written: Callable[[float], str]) -> str:
    return written(value) if unit == "bytes kept" else f"{value:g}"


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _pm(mean: float, error: float, written: Callable[[float], str]) -> str:
    return f"{written(mean)} ± {written(error)}" if error else written(mean)


def _bands(lines: Sequence[Series]) -> str:
    return (
        " Lines are means over seeds, bands their standard errors."
        if any(e.error.any() for e in lines)
        else ""
    )
