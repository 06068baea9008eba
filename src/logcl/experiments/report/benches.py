"""Figures and reports of benches: methods beside the paper, accuracy by bytes, cost as n grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args

import numpy as np
from matplotlib.axes import Axes

from logcl import allocation
from logcl.core.text import human_bytes
from logcl.experiments import report
from logcl.experiments.bench import tables
from logcl.experiments.bench.benches import BENCHES
from logcl.experiments.bench.grid import Scale
from logcl.experiments.bench.tables import PUBLISHED
from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Drawing, styled
from logcl.experiments.report.figures.lines import Line, plot
from logcl.experiments.result import Result, pooled, read
from logcl.experiments.table import Results, best_first, group_by, label, mean_accuracy, standard_error

Points = list[tuple[float, float]]


def drawings(bench: str, results: Results) -> list[Drawing]:
    """The bench's own figures; none if it only has those of every report."""
    draw: dict[str, Callable[[Results], list[Drawing]]] = {
        "table1": _beside_the_paper, "table2": _beside_the_paper, "bytes": _by_bytes, "growth": _growth,
    }  # fmt: skip
    return draw[bench](results) if bench in draw and results else []


def found_in(folder: Path) -> dict[str, list[Result]]:
    """Results of `logcl bench` by scale, the largest first; empty if it is not the folder of a bench."""
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
    shown, drawn, detailed = [], [], []
    for scale, results in by_scale.items():
        prefix, suffix = (f"{scale}-", f" ({scale})") if len(by_scale) > 1 else ("", "")
        shown += [replace(t, title=t.title + suffix) for t in tables.TABLES[bench](results)]
        drawn += [replace(d, name=prefix + d.name, title=d.title + suffix) for d in drawings(bench, results)]
        # In `bytes`, the other sizes are points on the curves.
        detailed += [r for r in results if bench != "bytes" or label(r) in ("logcl", "joint")]
    commands = " and ".join(f"`logcl bench {bench} --scale {scale}`" for scale in by_scale)
    count = sum(map(len, by_scale.values()))
    return report.write(
        detailed, path, format, title=title or f"{bench}: {BENCHES[bench].summary}",
        intro=f"Made by {commands}: {count} experiments.", tables=shown, drawings=drawn, figures=figures,
    )  # fmt: skip


@styled()
def _beside_the_paper(results: Results) -> list[Drawing]:
    """Accuracy of each method with its standard error, and the accuracy published in the paper."""
    found = []
    for stream, mine in group_by(results, lambda r: r.stream).items():
        methods = best_first(mine, lambda r: r.method)[::-1]
        figure = canvas.sheet("narrow", canvas.grown(len(methods), 0.28, 1.5, 6, 0.9))
        axes = figure.add_subplot()
        names = [name for name, _ in methods]
        means = [100 * mean_accuracy(runs) for _, runs in methods]
        hover = []
        for row, (method, runs) in enumerate(methods):
            error = standard_error([100 * r.final_accuracy for r in runs])
            axes.errorbar(means[row], row, xerr=error, fmt="o", color=canvas.colour(0), zorder=3)
            hover.append(f"{method}: {means[row]:.2f} ± {error:.2f} %")
            if method in (printed := PUBLISHED.get(stream, {})):
                mean, spread = printed[method]
                axes.errorbar(mean, row, xerr=spread or 0, fmt="s", color=canvas.GREY, mfc="none", zorder=2)
        gid, rows = f"{canvas.HIT}methods", range(len(methods))
        axes.plot(means, rows, "o", markersize=12, alpha=0, gid=gid, zorder=4)
        axes.set(yticks=rows, yticklabels=names, xlabel="accuracy %")
        axes.plot([], [], "o", color=canvas.colour(0), label="measured here")
        axes.plot([], [], "s", color=canvas.GREY, mfc="none", label="published in the paper")
        axes.grid(axis="x")
        figure.legend(loc="outside lower center", ncols=2)
        ends = [f"{name} {mean:.1f} %" for name, mean in zip(names, means, strict=True)]
        found.append(
            Drawing(
                f"methods-{stream}",
                f"{stream}: all methods",
                f"Final accuracy: {canvas.listed(ends[::-1])}.",
                figure,
                "Dots: mean ± standard error over seeds. Squares: published in the paper.",
                {gid: tuple(hover)},
            )
        )
    return found


def _by_bytes(results: Results) -> list[Drawing]:
    found = []
    for stream, mine in group_by(results, lambda r: r.stream).items():
        by_kind = group_by(mine, tables.storage)
        joint = by_kind.pop("joint", [])
        if not by_kind:
            continue  # an unfinished grid
        accuracy: dict[str, Points] = {}
        quality: dict[str, Points] = {}
        # LogCL first; the same order, and so the same colours, in all figures.
        for kind in sorted(by_kind, key=lambda name: (not name.startswith("logcl"), name)):
            accuracy[kind] = [(r.memory_bytes, 100 * r.final_accuracy) for r in by_kind[kind]]
            replayed = [(r.memory_bytes, pooled(r.reconstruction)) for r in by_kind[kind]]
            quality[kind] = [(kept / all.samples, all.psnr) for kept, all in replayed if all.psnr is not None]
        drawing = _curves(
            f"accuracy-by-bytes-{stream}", f"{stream}: accuracy against bytes kept", accuracy,
            "bytes kept", "accuracy %", human_bytes, "{:.1f} %",
            "Each kind of storage at several sizes. Dotted: joint training on raw data.",
        )  # fmt: skip
        if joint:
            level = 100 * mean_accuracy(joint)
            drawing.figure.axes[0].axhline(level, color=canvas.INK, linestyle=":", linewidth=1.2)
        found.append(drawing)
        if any(quality.values()):
            found.append(
                _curves(
                    f"quality-by-bytes-{stream}", f"{stream}: quality against bytes per sample", quality,
                    "bytes per sample kept, everything included", "PSNR dB", "{:.0f} B".format, "{:.1f} dB",
                    "PSNR of the samples that are kept, as replayed after all tasks.",
                )
            )  # fmt: skip
    return found


def _growth(results: Results) -> list[Drawing]:
    unit, size = tables.unit_and_task_size(results)
    planned = tables.planned_fits(10**6, unit, size)
    fits: dict[str, Points] = {
        "LogCL, planned": [(n, fitted / n) for n, fitted in planned],
        "one model, planned": [(n, tables.fits_of_one_model(n, size)) for n, _ in planned],
    }
    models: dict[str, Points] = {
        "LogCL, planned": [(n, len(allocation.layout(n, unit))) for n, _ in planned],
        "at most, planned": [(n, allocation.max_generation(n, unit) + 1) for n, _ in planned],
    }
    seconds: dict[str, Points] = {}
    for result in results:
        n = list(accumulate(task.samples for task in result.tasks))
        fitted = accumulate(task.trained for task in result.tasks)
        spent = accumulate(task.seconds.get("absorb", 0.0) for task in result.tasks)
        fits[f"{result.method}, measured"] = [(a, b / a) for a, b in zip(n, fitted, strict=True)]
        alive = [task.models for task in result.tasks]
        models[f"{result.method}, measured"] = list(zip(n, alive, strict=True))
        seconds[result.method] = [(a, b / a * 1000) for a, b in zip(n, spent, strict=True)]
    return [
        _curves(
            "fits-by-samples", "Fits per sample", fits, "samples seen", "fits per sample",
            "{:,.0f}".format, "{:.1f}",
            "Samples fitted so far, divided by samples seen: logarithmic where levels merge like bits, "
            "linear where one model is retrained at each task.",
            both_logarithmic=True,
        ),
        _curves(
            "models-by-samples", "Number of models", models, "samples seen", "models",
            "{:,.0f}".format, "{:.0f}",
            "One per 1-bit of the number of units seen, so at most one more than its logarithm.",
        ),
        _curves(
            "seconds-by-samples", "Time to absorb, per sample seen", seconds, "samples seen",
            "ms per sample", "{:,.0f}".format, "{:.2f} ms",
            "Measured time of all fits so far, divided by samples seen.",
        ),
    ]  # fmt: skip


@styled()
def _curves(
    name: str,
    title: str,
    points: dict[str, Points],
    x: str,
    y: str,
    write_x: Callable[[float], str],
    format_y: str,
    caption: str,
    both_logarithmic: bool = False,
) -> Drawing:
    """Lines through points, x on a logarithmic axis."""
    columns = _columns(points)
    figure = canvas.sheet("medium", 3.6 + 0.22 * -(-len(points) // columns))
    axes: Axes = figure.add_subplot()
    axes.set_xscale("log")
    if both_logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_major_formatter(lambda value, _: write_x(value))
    axes.xaxis.set_minor_formatter("")

    def look(_: int, kind: str) -> dict[str, Any]:
        return {"label": kind, "linestyle": "--" if "planned" in kind else "-", "markersize": 4}

    by_kind = {kind: np.array(sorted(mine)).reshape(-1, 2).T for kind, mine in points.items()}
    lines = [Line(kind, at[0], at[1], np.zeros(at.shape[1])) for kind, at in by_kind.items()]
    if both_logarithmic:
        lines = [line.above_zero() for line in lines]
    texts = "{label}: {y} at {x}", "{label} reaches {y} at {x}"
    hover, ends = plot(axes, lines, texts, write_x, format_y.format, look)
    axes.set(xlabel=x, ylabel=y)
    axes.grid()
    figure.legend(loc="outside lower center", ncols=columns, handlelength=2.5)
    return Drawing(name, title, f"{title}: {ends}.", figure, caption, hover, "medium")


def _columns(names: Iterable[str]) -> int:
    """The number of columns in which a legend of these names is no wider than a figure."""
    lengths = np.array([len(name) for name in names])
    for columns in (3, 2):
        # matplotlib fills column by column; the first ones get one name more.
        if sum(part.max(initial=0) + 8 for part in np.array_split(lengths, columns)) <= 62:
            return columns
    return 1
