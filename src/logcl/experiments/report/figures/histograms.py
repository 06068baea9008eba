"""How far replay is from the originals: a histogram for each number of re-encodings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from logcl.experiments.report.figures.canvas import (
    COLOURS,
    INK,
    Box,
    Drawing,
    boxes,
    listed,
    sheet,
    slug,
    styled,
)
from logcl.experiments.report.study import Runs
from logcl.experiments.result import ERROR_BINS, GenerationError


def counted(runs: Runs) -> tuple[GenerationError, ...]:
    """Generations of the first seed with histograms; without the buffer, whose samples are still exact."""
    return tuple(
        error for error in runs.first.reconstruction if error.generation >= 0 and any(error.histogram)
    )


def limits(methods: Sequence[Runs]) -> tuple[float, float]:
    """Errors between which all histograms lie, so that methods side by side have the same axis."""
    used = np.any([error.histogram for runs in methods for error in counted(runs)], axis=0)
    filled = np.flatnonzero(used)
    return float(ERROR_BINS[max(filled[0] - 1, 0)]), float(ERROR_BINS[min(filled[-1] + 2, len(used))])


MOST_ROWS = 10
"""More generations than this are drawn in groups."""


@dataclass(frozen=True)
class Group:
    """Generations that are drawn in one row."""

    name: str
    """E.g. 3, or 4 to 7."""
    samples: int
    mse: float
    histogram: NDArray[np.int64]


def stages(found: Sequence[GenerationError]) -> list[tuple[str, list[GenerationError]]]:
    """Generations by the name they are shown under: each by itself or, of many, 0, 1, 2 to 3, 4 to 7, ..."""
    together = len(found) > MOST_ROWS
    named = []
    for _, members in groupby(found, lambda e: stage(e.generation) if together else e.generation):
        mine = list(members)
        first, last = mine[0].generation, mine[-1].generation
        named.append((f"{first}" if first == last else f"{first} to {last}", mine))
    return named


def stage(generation: int) -> int:
    """Generations of equal stage are as good as equally old; -1, the buffer, is by itself."""
    return generation.bit_length() if generation >= 0 else -1


def grouped(found: Sequence[GenerationError]) -> list[Group]:
    """A row for each generation or group of them."""
    groups = []
    for name, mine in stages(found):
        samples = sum(error.samples for error in mine)
        mse = sum(error.mse * error.samples for error in mine) / samples
        groups.append(Group(name, samples, mse, np.sum([error.histogram for error in mine], axis=0)))
    return groups


@styled()
def errors(runs: Runs, between: tuple[float, float]) -> Drawing | None:
    """One row a generation or group of them, its share of samples by error; None without histograms."""
    found = grouped(counted(runs))
    if not found:
        return None
    figure = sheet("narrow", 0.62 * len(found) + 0.75)
    rows = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    hover = {}
    for number, (axes, error) in enumerate(zip(rows, found, strict=True)):
        shares = error.histogram / error.samples
        filled = np.flatnonzero(shares)
        gid = f"generation-{slug(error.name)}"
        colour = COLOURS[number % len(COLOURS)]
        widths = np.diff(ERROR_BINS)
        boxes(
            axes,
            [Box(ERROR_BINS[k], 0, widths[k], shares[k]) for k in filled],
            [colour] * len(filled),
            gid,
            linewidths=0,
            antialiaseds=False,
        )
        axes.axvline(max(error.mse, between[0]), color=INK, linewidth=1.2, linestyle="--", zorder=3)
        axes.set(xscale="log", xlim=between, ylim=(0, 1.05 * shares.max()), yticks=[])
        axes.spines["left"].set_visible(False)
        axes.set_ylabel(error.name, rotation=0, ha="right", va="center")
        hover[gid] = tuple(
            f"generation {error.name}: {error.histogram[k]:,} of {error.samples:,} samples have an "
            f"error of {ERROR_BINS[k]:.1e} to {ERROR_BINS[k + 1]:.1e}"
            for k in filled
        )
    rows[-1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    decades = np.log10(between[1] / between[0])
    rows[-1].xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if decades < 3 else (1.0,)))
    rows[-1].xaxis.set_minor_locator(NullLocator())
    rows[-1].set_xlabel("mean squared error of a sample")
    figure.supylabel("generation", fontsize=10)
    means = [f"{e.mse:.2g} in generation {e.name}" for e in found]
    return Drawing(
        f"errors-{slug(runs.label)}",
        f"{runs.label}, seed {runs.first.seed}",
        f"Reconstruction errors by generation, {runs.label}: the mean is {listed(means)}.",
        figure,
        hover=hover,
    )
