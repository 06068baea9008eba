"""Reconstruction errors: one histogram per generation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Drawing, styled
from logcl.experiments.report.study import Runs
from logcl.experiments.result import ERROR_BINS, GenerationError, pooled

MOST_ROWS = 10
"""More generations than this are pooled into stages."""


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
    bottom.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
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
