"""The tables of each bench, beside the accuracies published in the paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from itertools import accumulate

import numpy as np

from logcl import allocation
from logcl.core.text import human_bytes, spread
from logcl.experiments.result import Result, pooled
from logcl.experiments.table import (
    Results,
    Table,
    accuracy,
    best_first,
    group_by,
    mean_accuracy,
    mean_bytes,
    sizes,
)  # fmt: skip
from logcl.memory.presets import BUDGETS
from logcl.methods import keeps

PUBLISHED: dict[str, dict[str, tuple[float, float | None]]] = json.loads(
    files(__package__).joinpath("published.json").read_bytes()
)
"""Accuracies published in the paper, by stream and method: mean and standard error, in percent."""

_NOTE = (
    "Accuracy over all classes after the last task, without task labels: mean ± standard error over seeds. "
    "Bytes: everything a method must keep to continue with the next task."
)


def published(stream: str, method: str) -> str:
    """As printed in the paper, or a dash."""
    mean, error = PUBLISHED.get(stream, {}).get(method, (None, None))
    return "–" if mean is None else f"{mean:g}" if error is None else f"{mean:g} ± {error:g}"


def _subset(results: Results) -> list[str]:
    """A note if not all data was used."""
    parts = sorted({f"{r.stream}: {r.subset}" for r in results if r.subset})
    return [f"Only a part of the data was used: {'; '.join(parts)}."] if parts else []


def _table1(results: Results) -> list[Table]:
    """The paper's table 1 with our results beside it; best first on the stream with the most methods."""
    streams = sorted(group_by(results, lambda r: r.stream).items())
    by_stream = {stream: group_by(mine, lambda r: r.method) for stream, mine in streams}
    ranked = sorted(by_stream.values(), key=len, reverse=True)
    methods = sorted(
        dict.fromkeys(result.method for result in results),
        key=lambda name: [-mean_accuracy(found.get(name, [])) for found in ranked],
    )
    records = []
    for method in methods:
        record = {"method": method}
        for stream, found in by_stream.items():
            mine = found.get(method, [])
            record[f"{stream} %"] = accuracy(mine)
            record[f"{stream}, paper %"] = published(stream, method)
            record[f"{stream}, bytes"] = human_bytes(mean_bytes(mine)) if mine else "–"
        record["seeds"] = ", ".join(str(len(found.get(method, []))) for found in by_stream.values())
        records.append(record)
    notes = [_NOTE]
    if own := sorted(set(methods) & {"curl", "hypercl", "vcl"}):
        which = f"except {', '.join(own)}, which use their published networks"
        notes.append(f"All methods train the same classifier, {which}.")
    return [Table.of("Table 1: MNIST and Omniglot", records, notes + _subset(results))]


def _table2(results: Results) -> list[Table]:
    """The paper's table 2; a column says in which setting each row was measured."""
    records = []
    for (method, preset), mine in best_first(results, lambda r: (r.method, r.settings.preset)):
        first, classifier = mine[0], mine[0].settings.classifier
        kept = {"all": f"all {first.samples:,}", "budget": first.budget or "–", "none": "none"}
        records.append(
            {
                "method": method,
                "accuracy %": accuracy(mine),
                "paper %": published(first.stream, method),
                "setting": preset if preset in BUDGETS else "offline",
                "samples kept": kept[keeps(method)],
                **sizes(mine, results),
                "epochs": str(classifier.epochs),
                "network": f"{classifier.network}, {classifier.width} wide",
                "seeds": str(len(mine)),
            }
        )
    title = f"Table 2: CIFAR-100 in {len(results[0].tasks)} tasks"
    return [Table.of(title, records, [_NOTE, *_subset(results)])]


def _extreme(results: Results) -> list[Table]:
    """The paper's experiment with 100 tasks, after the last one."""
    raw = [result for result in results if result.method == "replay-buffer"]
    records = [
        {
            "method": method,
            "accuracy %": accuracy(mine),
            **sizes(mine, results),
            "% of the buffer": f"{100 * mean_bytes(mine) / mean_bytes(raw):.1f}" if raw else "–",
            "error (MSE)": spread([pooled(r.reconstruction).mse for r in mine if r.reconstruction], 4),
            "seconds": spread([sum(r.seconds.values()) for r in mine], 0),
            "seeds": str(len(mine)),
        }
        for method, mine in best_first(results, lambda r: r.method)
    ]
    notes = [_NOTE]
    if any(result.settings.classifier.warm_start for result in results):
        notes.append(
            "After each task the classifier is trained briefly from a warm start; joint training trains its "
            "classifier once, at the end."
        )
    title = f"Extreme: {len(results[0].tasks)} tasks, {len(results[0].classes)} characters"
    return [Table.of(title, records, notes + _subset(results))]


def storage(result: Result) -> str:
    """What the samples are stored as, for the `bytes` bench."""
    if codec := result.options.get("codec"):
        return str(codec)
    if result.has_levels:
        return f"{result.method}, {result.settings.preset}"
    return "raw samples" if keeps(result.method) == "budget" else result.method


def _bytes(results: Results) -> list[Table]:
    """Accuracy and quality against bytes, one table per stream."""
    tables = []
    for stream, mine in sorted(group_by(results, lambda r: r.stream).items()):
        ordered = sorted(mine, key=lambda r: (storage(r), r.memory_bytes))
        records = [
            {
                "storage": storage(result),
                "bytes": human_bytes(result.memory_bytes),
                "bytes per sample seen": f"{result.memory_bytes / result.samples:.0f}",
                "samples kept %": f"{100 * kept.samples / result.samples:.0f}" if kept.samples else "–",
                "accuracy %": f"{100 * result.final_accuracy:.2f}",
                "PSNR dB": f"{kept.psnr:.1f}" if kept.psnr else "–",
                "seed": str(result.seed),
            }
            for result, kept in ((r, pooled(r.reconstruction)) for r in ordered)
        ]
        notes = ["PSNR of the samples that are kept.", *_subset(mine)]
        tables.append(Table.of(f"Accuracy against bytes: {stream}", records, notes))
    return tables


def _growth(results: Results) -> list[Table]:
    """What was measured, and what the allocation predicts up to a million samples."""
    measured = []
    for result in sorted(results, key=lambda r: (r.method, r.seed)):
        n, tasks = result.samples, len(result.tasks)
        fitted = sum(task.trained for task in result.tasks)
        seconds = [task.seconds.get("absorb", 0.0) for task in result.tasks]
        measured.append(
            {
                "method": result.method,
                "samples": f"{n:,}",
                "tasks": str(tasks),
                "models": str(result.tasks[-1].models),
                "fitted per task": f"{fitted / tasks:,.0f}",
                "fits per sample": f"{fitted / n:.1f}",
                "replays per sample": f"{sum(task.replayed for task in result.tasks) / n:.1f}",
                "max generation": str(max((e.generation for e in result.reconstruction), default=0)),
                "s per task, first half": f"{np.mean(seconds[: tasks // 2]):.2f}",
                "s per task, second half": f"{np.mean(seconds[tasks // 2 :]):.2f}",
                "s total": f"{sum(seconds):.0f}",
            }
        )
    unit, size = unit_and_task_size(results)
    planned = [
        {
            "samples": f"{n:,}",
            "models": str(len(allocation.layout(n, unit))),
            "fitted per task, LogCL": f"{fitted * size / n:,.0f}",
            "fitted per task, one model": f"{fits_of_one_model(n, size) * size:,.0f}",
            "fits per sample, LogCL": f"{fitted / n:.1f}",
            "fits per sample, one model": f"{fits_of_one_model(n, size):.1f}",
            # Every fitted sample that is not new was replayed.
            "replays per sample, LogCL": f"{(fitted - n // unit * unit) / n:.1f}",
            "max generation": str(allocation.max_generation(n, unit)),
        }
        for n, fitted in planned_fits(10**6, unit, size)
    ]
    title = f"Growth, planned: units of {unit:,}, tasks of {size:,} samples"
    note = "One model of all data, retrained at each task, fits each sample about n / (2 · task size) times."
    return [Table.of("Growth, measured", measured, _subset(results)), Table.of(title, planned, [note])]


def unit_and_task_size(results: Results) -> tuple[int, int]:
    """Samples per unit, and per task on average."""
    first = results[0]
    return first.settings.unit, max(round(first.samples / len(first.tasks)), 1)


def planned_fits(upto: int, unit: int, size: int) -> list[tuple[int, int]]:
    """(samples seen, samples fitted so far) at n = 1, 2, 5 · 10^k, rounded down to whole tasks."""
    marks = {m * 10**k // size * size for k in range(2, 1 + len(str(upto))) for m in (1, 2, 5)}
    ends = range(size, upto + 1, size)
    plans = (allocation.plan(n - size, n, unit) for n in ends)
    fitted = accumulate(sum(slot.samples for slot in plan.train) for plan in plans)
    return [(n, so_far) for n, so_far in zip(ends, fitted, strict=True) if n in marks]


def fits_of_one_model(n: int, size: int) -> float:
    """Fits per sample if one model of everything is retrained at each task: (1 + 2 + … + tasks) / tasks."""
    return (n // size + 1) / 2


TABLES: dict[str, Callable[[Results], list[Table]]] = {
    "table1": _table1, "table2": _table2, "extreme": _extreme, "bytes": _bytes, "growth": _growth,
}  # fmt: skip
