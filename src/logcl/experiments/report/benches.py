"""Figures and reports of benches: methods beside the paper, accuracy by bytes, cost as n grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from logcl import allocation
from logcl.core.text import human_bytes
from logcl.experiments import report
from logcl.experiments.bench import tables
from logcl.experiments.bench.benches import BENCHES
from logcl.experiments.bench.grid import Scale
from logcl.experiments.bench.published import PUBLISHED
from logcl.experiments.bench.summary import Results, group_by, label, mean_accuracy, standard_error
from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Drawing, styled
from logcl.experiments.result import Result, read

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
    several = len(by_scale) > 1
    shown, drawn, detailed = [], [], []
    for scale, results in by_scale.items():
        of_scale = tables.TABLES[bench](results)
        shown += [replace(t, title=f"{t.title} ({scale})") if several else t for t in of_scale]
        drawn += [
            replace(d, name=f"{scale}-{d.name}", title=f"{d.title} ({scale})") if several else d
            for d in drawings(bench, results)
        ]
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
        methods = sorted(group_by(mine, lambda r: r.method).items(), key=lambda item: mean_accuracy(item[1]))
        figure = canvas.sheet("narrow", canvas.grown(len(methods), 0.28, 1.5, 6, 0.9))
        axes = figure.add_subplot()
        means, hover = [], []
        for row, (method, runs) in enumerate(methods):
            mean, error = 100 * mean_accuracy(runs), standard_error([100 * r.final_accuracy for r in runs])
            axes.errorbar(mean, row, xerr=error, fmt="o", color=canvas.colour(0), zorder=3)
            means.append(mean)
            hover.append(f"{method}: {mean:.2f} ± {error:.2f} %")
            if printed := PUBLISHED.get(stream, {}).get(method):
                axes.errorbar(
                    printed[0], row, xerr=printed[1] or 0, fmt="s", color=canvas.GREY, mfc="none", zorder=2
                )
        axes.plot(
            means, range(len(methods)), "o", markersize=12, alpha=0, gid=f"{canvas.HIT}methods", zorder=4
        )
        axes.set(yticks=range(len(methods)), yticklabels=[name for name, _ in methods], xlabel="accuracy %")
        axes.plot([], [], "o", color=canvas.colour(0), label="measured here")
        axes.plot([], [], "s", color=canvas.GREY, mfc="none", label="published in the paper")
        axes.grid(axis="x")
        figure.legend(loc="outside lower center", ncols=2)
        ends = [f"{name} {mean:.1f} %" for (name, _), mean in zip(methods, means, strict=True)]
        found.append(
            Drawing(
                f"methods-{stream}", f"{stream}: all methods",
                f"Final accuracy: {canvas.listed(ends[::-1])}.", figure,
                "Dots: mean ± standard error over seeds. Squares: published in the paper.",
                {f"{canvas.HIT}methods": tuple(hover)},
            )
        )  # fmt: skip
    return found


def _by_bytes(results: Results) -> list[Drawing]:
    found = []
    for stream, mine in group_by(results, lambda r: r.stream).items():
        joint = [r for r in mine if r.method == "joint"]
        kept = [r for r in mine if r.method != "joint"]
        if not kept:
            continue  # an unfinished grid
        # LogCL first; the same order, and so the same colours, in all figures.
        kinds = sorted(map(tables.storage, kept), key=lambda name: (not name.startswith("logcl"), name))
        accuracy: dict[str, Points] = {kind: [] for kind in kinds}
        quality: dict[str, Points] = {kind: [] for kind in kinds}
        for result in kept:
            accuracy[tables.storage(result)].append((result.memory_bytes, 100 * result.final_accuracy))
            samples, psnr = tables.replayable(result), tables.psnr(result)
            if samples is not None and psnr is not None:
                quality[tables.storage(result)].append((result.memory_bytes / samples, psnr))
        found.append(
            _curves(
                f"accuracy-by-bytes-{stream}", f"{stream}: accuracy against bytes kept", accuracy,
                "bytes kept", "accuracy %", human_bytes, lambda value: f"{value:.1f} %",
                "Each kind of storage at several sizes. Dotted: joint training on raw data.",
                100 * mean_accuracy(joint) if joint else None,
            )
        )  # fmt: skip
        if any(quality.values()):
            found.append(
                _curves(
                    f"quality-by-bytes-{stream}", f"{stream}: quality against bytes per sample", quality,
                    "bytes per sample kept, everything included", "PSNR dB", lambda value: f"{value:.0f} B",
                    lambda value: f"{value:.1f} dB",
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
        n = np.cumsum([t.samples for t in result.tasks]).tolist()
        fitted = np.cumsum([t.trained for t in result.tasks]) / n
        spent = np.cumsum([t.seconds.get("absorb", 0.0) for t in result.tasks]) / n * 1000
        fits[f"{result.method}, measured"] = list(zip(n, fitted.tolist(), strict=True))
        alive = [t.models for t in result.tasks]
        models[f"{result.method}, measured"] = list(zip(n, alive, strict=True))
        seconds[result.method] = list(zip(n, spent.tolist(), strict=True))

    return [
        _curves(
            "fits-by-samples", "Fits per sample", fits, "samples seen", "fits per sample",
            "{:,.0f}".format, "{:.1f}".format,
            "Samples fitted so far, divided by samples seen: logarithmic where levels merge like bits, "
            "linear where one model is retrained at each task.",
            both_logarithmic=True,
        ),
        _curves(
            "models-by-samples", "Number of models", models, "samples seen", "models",
            "{:,.0f}".format, "{:.0f}".format,
            "One per 1-bit of the number of units seen, so at most one more than its logarithm.",
        ),
        _curves(
            "seconds-by-samples", "Time to absorb, per sample seen", seconds, "samples seen",
            "ms per sample", "{:,.0f}".format, "{:.2f} ms".format,
            "Measured time of all fits so far, divided by samples seen.",
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
    figure = canvas.sheet("medium", 3.6 + 0.22 * -(-len(lines) // _columns(list(lines))))
    axes: Axes = figure.add_subplot()
    hover: dict[str, tuple[str, ...]] = {}
    ends = []
    for number, (kind, unsorted) in enumerate(lines.items()):
        points = sorted((a, b) for a, b in unsorted if b > 0 or not both_logarithmic)
        if not points:
            continue  # its colour stays reserved
        texts = [f"{kind}: {write_y(b)} at {write_x(a)}" for a, b in points]
        style = "--" if "planned" in kind else "-"
        hover |= canvas.line(axes, number, points, texts, markersize=4, linestyle=style, label=kind)
        ends.append(f"{kind} reaches {write_y(points[-1][1])} at {write_x(points[-1][0])}")
    if reference is not None:
        axes.axhline(reference, color=canvas.INK, linestyle=":", linewidth=1.2)
    axes.set_xscale("log")
    if both_logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write_x(value)))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axes.set(xlabel=x, ylabel=y)
    axes.grid()
    figure.legend(loc="outside lower center", ncols=_columns(list(lines)), handlelength=2.5)
    return Drawing(name, title, f"{title}: {canvas.listed(ends)}.", figure, caption, hover, "medium")


def _columns(names: list[str]) -> int:
    """The number of columns in which a legend of these names is no wider than a figure."""
    lengths = np.array([len(name) for name in names])
    for columns in (3, 2):
        # matplotlib fills column by column; the first ones get one name more.
        if sum(part.max(initial=0) + 8 for part in np.array_split(lengths, columns)) <= 62:
            return columns
    return 1
