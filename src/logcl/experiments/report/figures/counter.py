"""The binary counter over time: which level holds which samples after each task.

A task adds its samples to a binary number. Levels up to the highest bit that changes are refitted; those
above are kept. One row per task, samples from left to right in order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from logcl import allocation
from logcl.allocation import Plan, Slot
from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Box, Drawing, styled
from logcl.experiments.report.study import Runs

_MOST_ROWS = 100
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

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All levels, oldest first."""
        return self.plan.keep + self.plan.train


def history(sizes: Sequence[int], unit: int) -> tuple[State, ...]:
    """The states after tasks of these sizes; at most a hundred of them, evenly spaced."""
    ends = np.cumsum(sizes)
    shown = np.unique(np.linspace(0, len(ends) - 1, min(len(ends), _MOST_ROWS)).round().astype(int))
    states, before = [], 0
    for task in shown:
        n = int(ends[task])
        states.append(State(int(task) + 1, n, allocation.plan(before, n, unit)))
        before = n
    return tuple(states)


@styled()
def counter(runs: Runs) -> Drawing | None:
    """One row per task; None for methods without levels."""
    if not runs.first.has_levels:
        return None
    result = runs.first
    unit = result.settings.unit
    states = history([task.samples for task in result.tasks], unit)
    top = max((slot.level for state in states for slot in state.slots), default=0)
    palette = [to_hex(colormaps["viridis"](0.92 - 0.7 * k / max(top, 1))) for k in range(top + 1)]
    few = len(states) <= _MOST_NUMBERS
    figure = canvas.sheet("wide", canvas.grown(len(states), 0.32, 0.6, 8, 1.35))
    axes = figure.add_subplot()
    hover = {
        "kept": _bars(axes, states, palette, few, kept=True),
        "trained": _bars(axes, states, palette, few, kept=False),
        "buffer": _buffers(axes, states),
    }
    total = states[-1].samples
    axes.set(
        xlim=(0, total), ylim=(len(states) + 0.5, 0.5), xlabel="samples in order of arrival", ylabel="task"
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    shown = canvas.round_ones([state.task for state in states], 25)
    axes.set_yticks([k + 1 for k in shown], [str(states[k].task) for k in shown])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if few:
        _numbers(axes, states, unit)
    _legend(figure, palette, any(state.plan.buffer for state in states))
    left_out = len(result.tasks) > len(states)
    return Drawing(
        f"counter-{canvas.slug(runs.label)}",
        f"{runs.label}: {total:,} samples in units of {unit:,}",
        _alternative(states, len(result.tasks), unit),
        figure,
        f"Each row is the memory after a task, each bar a level: level k holds {unit:,} · 2^k samples. "
        "Strong, outlined bars were fitted "
        + ("since the row above" if left_out else "in this task")
        + "; faint bars were kept unchanged."
        + (f" {len(states)} of {len(result.tasks):,} tasks are shown." if left_out else ""),
        {gid: texts for gid, texts in hover.items() if texts},
        size="wide",
    )


def _bars(
    axes: Axes, states: Sequence[State], palette: Sequence[str], few: bool, *, kept: bool
) -> tuple[str, ...]:
    """Draw the levels that were kept, or those that were fitted; returns their hover texts."""
    held = [
        (row, slot)
        for row, state in enumerate(states, 1)
        for slot in (state.plan.keep if kept else state.plan.train)
    ]
    if not held:
        return ()
    height = 0.78 if few else 0.9
    canvas.boxes(
        axes,
        [Box(slot.start - 1, row - height / 2, slot.samples, height) for row, slot in held],
        [_faint(palette[slot.level]) if kept else palette[slot.level] for _, slot in held],
        "kept" if kept else "trained",
        edgecolors=[palette[slot.level] if kept else canvas.INK for _, slot in held],
        linewidths=(0.9 if few else 0.4) if not kept else 0.6 if few else 0,
    )
    for row, slot in held:
        if few and slot.samples > states[-1].samples / 60:
            colour = canvas.INK if kept else canvas.on(palette[slot.level])
            middle = slot.start - 1 + slot.samples / 2
            axes.text(middle, row, str(slot.level), color=colour, ha="center", va="center", fontsize=9)
    return tuple(
        f"level {slot.level}, samples {slot.start:,}–{slot.stop:,}: "
        + f"{'kept' if kept else 'fitted'} in task {states[row - 1].task}"
        for row, slot in held
    )


def _buffers(axes: Axes, states: Sequence[State]) -> tuple[str, ...]:
    waiting = [(row, s.task, s.plan.buffer) for row, s in enumerate(states, 1) if s.plan.buffer]
    if waiting:
        where = [Box(buffer.start - 1, row - 0.25, len(buffer), 0.5) for row, _, buffer in waiting]
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


def _legend(figure: Figure, palette: Sequence[str], buffer: bool) -> None:
    marks = [Patch(facecolor=colour, label=f"level {k}") for k, colour in enumerate(palette)]
    colour = palette[len(palette) // 2]
    marks.append(Patch(facecolor=colour, edgecolor=canvas.INK, label="fitted"))
    marks.append(Patch(facecolor=_faint(colour), edgecolor=colour, linewidth=0.6, label="kept"))
    if buffer:
        marks.append(Patch(facecolor=canvas.GREY, label="buffer"))
    figure.legend(handles=marks, loc="outside lower center", ncols=7, handlelength=1.5, columnspacing=1.4)


def _faint(colour: str) -> str:
    return to_hex((*to_rgb(colour), _FAINT), keep_alpha=True)


def _alternative(states: Sequence[State], tasks: int, unit: int) -> str:
    last, fits = states[-1], sum(len(state.plan.train) for state in states)
    held = [f"level {s.level} holds samples {s.start:,} to {s.stop:,}" for s in last.slots]
    if last.plan.buffer:
        held.append(f"the buffer holds the newest {len(last.plan.buffer):,}")
    return (
        f"The binary counter over {tasks:,} tasks and {last.samples:,} samples in units of {unit:,}. "
        f"After the last task, {canvas.listed(held)}; {fits:,} fits are shown."
    )
