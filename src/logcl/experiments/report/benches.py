"""Figures that only a bench has: our figures beside the paper's, accuracy by bytes, work as n grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from logcl.core.text import human_bytes
from logcl.experiments import report
from logcl.experiments.bench.benches import BENCHES
from logcl.experiments.bench.grid import Scale
from logcl.experiments.bench.published import PUBLISHED
from logcl.experiments.bench.table import label
from logcl.experiments.bench.tables import TABLES, by, kind, planned, psnr, replayable
from logcl.experiments.report.figures.canvas import (
    COLOURS,
    GREY,
    HIT,
    INK,
    MARKERS,
    Drawing,
    grown,
    listed,
    sheet,
    styled,
)
from logcl.experiments.result import Result, read

Results = Sequence[Result]
Points = list[tuple[float, float]]


def drawings(bench: str, results: Results) -> list[Drawing]:
    """Of a bench's results; none for a bench whose figures are those of any comparison."""
    draw: dict[str, Callable[[Results], list[Drawing]]] = {
        "table1": _beside_the_paper, "table2": _beside_the_paper, "bytes": _by_bytes, "growth": _growth,
    }  # fmt: skip
    return draw[bench](results) if bench in draw and results else []


def found_in(folder: Path) -> dict[str, list[Result]]:
    """By scale, the largest first, the results that `logcl bench` left; nothing if it is no such folder."""
    if folder.resolve().name not in BENCHES:
        return {}
    by_scale = {
        scale: [read(path) for path in sorted(folder.glob(f"{scale}-*.json"))]
        for scale in reversed(get_args(Scale))
    }
    return {scale: results for scale, results in by_scale.items() if results}


def write(
    bench: str,
    by_scale: Mapping[str, Results],
    path: Path,
    format: str = "html",
    *,
    title: str = "",
    figures: Path | None = None,
) -> list[Path]:
    """The bench's report: its tables and figures at each scale, and the details of its runs."""
    several = len(by_scale) > 1
    tables, drawn, detailed = [], [], []
    for scale, results in by_scale.items():
        of_scale = TABLES[bench](results)
        tables += [replace(t, title=f"{t.title} ({scale})") if several else t for t in of_scale]
        drawn += [
            replace(d, name=f"{scale}-{d.name}", title=f"{d.title} ({scale})") if several else d
            for d in drawings(bench, results)
        ]
        # Of `bytes`, the other sizes are points on its curves.
        detailed += [r for r in results if bench != "bytes" or label(r) in ("logcl", "joint")]
    commands = " and ".join(f"`logcl bench {bench} --scale {scale}`" for scale in by_scale)
    count = sum(map(len, by_scale.values()))
    return report.write(
        detailed, path, format, title=title or f"{bench}: {BENCHES[bench].summary}",
        intro=f"Made by {commands}: {count} experiments.", tables=tables, drawings=drawn, figures=figures,
    )  # fmt: skip


@styled()
def _beside_the_paper(results: Results) -> list[Drawing]:
    """Each method's accuracy, with its standard error, and what the paper prints for it."""
    found = []
    for (stream,), mine in by(results, lambda r: (r.stream,)).items():
        methods = by(mine, lambda r: (r.method,))
        order = sorted(methods, key=lambda m: np.mean([r.final_accuracy for r in methods[m]]))
        figure = sheet("narrow", grown(len(order), 0.28, 1.5, 6, 0.9))
        axes = figure.add_subplot()
        hover, said = [], []
        for row, (method,) in enumerate(order):
            values = [100 * r.final_accuracy for r in methods[method,]]
            error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
            axes.errorbar(np.mean(values), row, xerr=error, fmt="o", color=COLOURS[0], zorder=3)
            said.append(f"{method} {np.mean(values):.1f} %")
            hover.append(f"{method}: {np.mean(values):.2f} ± {error:.2f} %")
            if printed := PUBLISHED.get(stream, {}).get(method):
                axes.errorbar(
                    printed[0], row, xerr=printed[1] or 0, fmt="s", color=GREY, mfc="none", zorder=2
                )
        means = [np.mean([100 * r.final_accuracy for r in methods[m]]) for m in order]
        axes.plot(means, range(len(order)), "o", markersize=12, alpha=0, gid=f"{HIT}methods", zorder=4)
        axes.set(yticks=range(len(order)), yticklabels=[m for (m,) in order], xlabel="accuracy %")
        axes.plot([], [], "o", color=COLOURS[0], label="measured here")
        axes.plot([], [], "s", color=GREY, mfc="none", label="printed in the paper")
        axes.grid(axis="x")
        figure.legend(loc="outside lower center", ncols=2)
        found.append(
            Drawing(
                f"methods-{stream}", f"{stream}: every method", f"Final accuracy: {listed(said[::-1])}.",
                figure,
                "Dots are means over seeds with their standard errors, squares what the paper prints.",
                {f"{HIT}methods": tuple(hover)},
            )
        )  # fmt: skip
    return found


def _by_bytes(results: Results) -> list[Drawing]:
    found = []
    for (stream,), mine in by(results, lambda r: (r.stream,)).items():
        joint = [r.final_accuracy for r in mine if r.method == "joint"]
        kept = [r for r in mine if r.method != "joint"]
        if not kept:
            continue  # an unfinished grid
        found.append(
            _curves(
                f"accuracy-by-bytes-{stream}", f"{stream}: accuracy against bytes kept",
                {name: [(r.memory_bytes, 100 * r.final_accuracy) for r in kept if kind(r) == name]
                 for name in _kinds(kept)},
                "bytes kept", "accuracy %", human_bytes, lambda value: f"{value:.1f} %",
                "Every way of keeping samples, at several sizes; dotted: joint training on raw data.",
                100 * float(np.mean(joint)) if joint else None,
            )
        )  # fmt: skip
        shown = [(r, quality) for r in kept if (quality := psnr(r)) is not None]
        if shown:
            points: dict[str, Points] = {name: [] for name in _kinds(kept)}
            for result, quality in shown:
                samples = replayable(result)
                assert samples is not None  # else there would be no quality
                points[kind(result)].append((result.memory_bytes / samples, quality))
            found.append(
                _curves(
                    f"quality-by-bytes-{stream}", f"{stream}: quality against bytes a sample", points,
                    "bytes a sample kept, all counted", "PSNR dB", lambda value: f"{value:.0f} B",
                    lambda value: f"{value:.1f} dB",
                    "Of the samples that are kept, as they are replayed after all tasks.",
                )
            )  # fmt: skip
    return found


def _kinds(results: Results) -> list[str]:
    """LogCL first; the same order, and so the same colours, in all figures of a bench."""
    return sorted({kind(r) for r in results}, key=lambda name: (not name.startswith("logcl"), name))


def _growth(results: Results) -> list[Drawing]:
    first = results[0]
    task = max(round(np.mean([t.samples for t in first.tasks])), 1)
    plan = planned(10**6, first.settings.unit, task)
    fits: dict[str, Points] = {
        "LogCL, planned": [(p.n, p.fitted / p.n) for p in plan],
        "one model, planned": [(p.n, p.alone / p.n) for p in plan],
    }
    models: dict[str, Points] = {
        "LogCL, planned": [(p.n, p.models) for p in plan],
        "at most, planned": [(p.n, p.most + 1) for p in plan],
    }
    seconds: dict[str, Points] = {}
    for result in results:
        n = np.cumsum([t.samples for t in result.tasks]).tolist()
        fitted = np.cumsum([t.trained for t in result.tasks]) / n
        spent = np.cumsum([t.seconds.get("absorb", 0.0) for t in result.tasks]) / n * 1000
        fits[f"{result.method}, measured"] = list(zip(n, fitted.tolist(), strict=True))
        models[f"{result.method}, measured"] = [
            (count, t.models) for count, t in zip(n, result.tasks, strict=True)
        ]
        seconds[result.method] = list(zip(n, spent.tolist(), strict=True))

    def samples(value: float) -> str:
        return f"{value:,.0f}"

    return [
        _curves(
            "fits-by-samples", "How often a sample has been fitted", fits, "samples seen",
            "fits a sample", samples, lambda value: f"{value:.1f}",
            "All fits so far, divided by the samples seen: it grows with the logarithm where levels merge "
            "like bits, and in proportion where one model is retrained at each task.",
            both_logarithmic=True,
        ),
        _curves(
            "models-by-samples", "Models alive", models, "samples seen", "models", samples,
            lambda value: f"{value:.0f}",
            "One for each 1-bit of the number of units seen, so at most one more than its logarithm.",
        ),
        _curves(
            "seconds-by-samples", "Time to absorb, for each sample seen", seconds, "samples seen",
            "ms a sample", samples, lambda value: f"{value:.2f} ms",
            "Measured seconds of all fits so far, divided by the samples seen.",
        ),
    ]  # fmt: skip


@styled()
def _curves(
    name: str,
    title: str,
    lines: dict[str, Points],
    x: str,
    y: str,
    write_x: Callable[[float], str],
    write_y: Callable[[float], str],
    caption: str,
    reference: float | None = None,
    both_logarithmic: bool = False,
) -> Drawing:
    """Lines through points, x on a logarithmic axis."""
    figure = sheet("medium", 3.6 + 0.22 * -(-len(lines) // _columns(list(lines))))
    axes: Axes = figure.add_subplot()
    hover = {}
    if both_logarithmic:  # where zero has no place
        lines = {name_of: [(a, b) for a, b in points if b > 0] for name_of, points in lines.items()}
    for number, (name_of, unsorted) in enumerate(lines.items()):
        points = sorted(unsorted)
        if not points:
            continue  # keeps its colour all the same
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        dashed = "--" if "planned" in name_of else "-"
        axes.plot(xs, ys, color=colour, marker=marker, markersize=4, linestyle=dashed, label=name_of)
        gid = f"{HIT}{number}"
        axes.plot(xs, ys, "o", color=colour, markersize=11, alpha=0, gid=gid, zorder=4)
        hover[gid] = tuple(f"{name_of}: {write_y(b)} at {write_x(a)}" for a, b in points)
    if reference is not None:
        axes.axhline(reference, color=INK, linestyle=":", linewidth=1.2)
    axes.set_xscale("log")
    if both_logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write_x(value)))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axes.set(xlabel=x, ylabel=y)
    axes.grid()
    figure.legend(loc="outside lower center", ncols=_columns(list(lines)), handlelength=2.5)
    ends = [
        f"{name_of} reaches {write_y(max(points)[1])} at {write_x(max(points)[0])}"
        for name_of, points in lines.items()
        if points
    ]
    return Drawing(name, title, f"{title}: {listed(ends)}.", figure, caption, hover, "medium")


def _columns(names: list[str]) -> int:
    """In how many columns a legend of these names is no wider than a figure."""
    lengths = np.array([len(name) for name in names])
    for columns in (3, 2):
        # matplotlib fills one column after the other, the first ones with one name more.
        if sum(part.max(initial=0) + 8 for part in np.array_split(lengths, columns)) <= 62:
            return columns
    return 1
