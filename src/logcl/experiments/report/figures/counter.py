"""The binary counter over time: which level holds which samples after each task.

A task adds its samples to a binary number. Levels up to the highest bit that changes are refitted; those
above are kept. One row per task, samples from left to right in order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from logcl import allocation
from logcl.allocation import Plan
from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Drawing, styled
from logcl.experiments.report.study import Runs

_MOST_NUMBERS = 25
"""Up to this number of rows, binary numbers are shown beside them and levels inside the bars."""
_FAINT = 0.3
"""Opacity of levels that were kept."""


class State(NamedTuple):
    """The memory after one task."""

    task: int
    """Counted from 1."""
    samples: int
    """n, all samples seen."""
    plan: Plan
    """What changed since the state above it."""


def history(sizes: Sequence[int], unit: int) -> tuple[State, ...]:
    """The states after tasks of these sizes; at most a hundred of them, evenly spaced."""
    shown = canvas.thinned(range(1, len(sizes) + 1))
    ends = [0, *(int(np.cumsum(sizes)[task - 1]) for task in shown)]
    plans = [allocation.plan(before, n, unit) for before, n in pairwise(ends)]
    return tuple(map(State, shown, ends[1:], plans))


@styled()
def counter(runs: Runs) -> Drawing | None:
    """One row per task; None for methods without levels."""
    if not runs.first.has_levels:
        return None
    tasks, unit = len(runs.first.tasks), runs.first.settings.unit
    states = history([task.samples for task in runs.first.tasks], unit)
    total = states[-1].samples
    last = allocation.layout(total, unit)
    top = max((slot.level for state in states for slot in state.plan.train), default=0)
    palette = [to_hex(colormaps["viridis"](0.92 - 0.7 * k / max(top, 1))) for k in range(top + 1)]
    figure = canvas.sheet("wide", canvas.grown(len(states), 0.32, 0.6, 8, 1.35))
    axes = figure.add_subplot()
    hover = {
        "kept": _bars(axes, states, palette, kept=True),
        "trained": _bars(axes, states, palette, kept=False),
        "buffer": _buffers(axes, states),
    }
    axes.set(
        xlim=(0, total), ylim=(len(states) + 0.5, 0.5), xlabel="samples in order of arrival", ylabel="task"
    )
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    shown = canvas.round_ones([state.task for state in states], 25)
    axes.set_yticks([k + 1 for k in shown], [str(states[k].task) for k in shown])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if len(states) <= _MOST_NUMBERS:
        _numbers(axes, states, unit)
    middle = palette[len(palette) // 2]
    marks = [Patch(facecolor=colour, label=f"level {k}") for k, colour in enumerate(palette)]
    marks.append(Patch(facecolor=middle, edgecolor=canvas.INK, label="fitted"))
    marks.append(Patch(facecolor=_faint(middle), edgecolor=middle, linewidth=0.6, label="kept"))
    marks += [Patch(facecolor=canvas.GREY, label="buffer")] if hover["buffer"] else []
    figure.legend(handles=marks, loc="outside lower center", ncols=7, handlelength=1.5, columnspacing=1.4)
    held = [f"level {slot.level} holds samples {slot.start:,} to {slot.stop:,}" for slot in last]
    if buffer := states[-1].plan.buffer:
        held.append(f"the buffer holds the newest {len(buffer):,}")
    since, some = "in this task", ""
    if tasks > len(states):
        since, some = "since the row above", f" {len(states)} of {tasks:,} tasks are shown."
    return Drawing(
        f"counter-{canvas.slug(runs.label)}",
        f"{runs.label}: {total:,} samples in units of {unit:,}",
        f"The binary counter over {tasks:,} tasks and {total:,} samples in units of {unit:,}. After the last "
        f"task, {canvas.listed(held)}; {sum(len(state.plan.train) for state in states):,} fits are shown.",
        figure,
        f"Each row is the memory after a task, each bar a level: level k holds {unit:,} · 2^k samples. "
        f"Strong, outlined bars were fitted {since}; faint bars were kept unchanged.{some}",
        {gid: texts for gid, texts in hover.items() if texts},
        size="wide",
    )


def _bars(axes: Axes, states: Sequence[State], palette: Sequence[str], *, kept: bool) -> tuple[str, ...]:
    """Draw the levels that were kept, or those that were fitted; returns their hover texts."""
    few = len(states) <= _MOST_NUMBERS
    height = 0.78 if few else 0.9
    where, colours, texts = [], [], []
    for row, (task, _, plan) in enumerate(states, 1):
        for slot in plan.keep if kept else plan.train:
            where.append((slot.start - 1, row - height / 2, slot.samples, height))
            colours.append(palette[slot.level])
            what = f"{'kept' if kept else 'fitted'} in task {task}"
            texts.append(f"level {slot.level}, samples {slot.start:,}–{slot.stop:,}: {what}")
            if few and slot.samples > states[-1].samples / 60:
                colour = canvas.INK if kept else canvas.on(palette[slot.level])
                middle = slot.start - 1 + slot.samples / 2
                axes.text(middle, row, str(slot.level), color=colour, ha="center", va="center", fontsize=9)
    if kept:
        edges, thin, gid, filled = colours, 0.6 if few else 0, "kept", list(map(_faint, colours))
    else:
        edges, thin, gid, filled = [canvas.INK] * len(colours), 0.9 if few else 0.4, "trained", colours
    canvas.boxes(axes, where, filled, gid, edgecolors=edges, linewidths=thin)
    return tuple(texts)


def _buffers(axes: Axes, states: Sequence[State]) -> tuple[str, ...]:
    waiting = [(row, s.task, s.plan.buffer) for row, s in enumerate(states, 1) if s.plan.buffer]
    where = [(buffer.start - 1, row - 0.25, len(buffer), 0.5) for row, _, buffer in waiting]
    canvas.boxes(axes, where, [canvas.GREY] * len(waiting), "buffer", linewidths=0)
    return tuple(
        f"buffer after task {task}, samples {buffer[0]:,}–{buffer[-1]:,}: raw, waiting for a full unit"
        for _, task, buffer in waiting
    )


def _numbers(axes: Axes, states: Sequence[State], unit: int) -> None:
    """The number of full units in binary, right of each row."""
    right = axes.get_yaxis_transform()
    digits = max((states[-1].samples // unit).bit_length(), 1)
    for row, state in enumerate(states, 1):
        number = f"{state.samples // unit:0{digits}b}"
        axes.text(1.015, row, number, transform=right, va="center", family="monospace", fontsize=10)
    axes.text(1.015, 0.35, "units", transform=right, va="bottom", fontsize=9)


def _faint(colour: str) -> str:
    return to_hex((*to_rgb(colour), _FAINT), keep_alpha=True)
