"""The tables of each bench."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate

import numpy as np

from logcl import allocation
from logcl.core.text import human_bytes, spread
from logcl.experiments.bench.published import published
from logcl.experiments.bench.summary import Results, accuracy, group_by, mean_accuracy, mean_bytes
from logcl.experiments.bench.table import Table
from logcl.experiments.result import Result, pooled
from logcl.memory.presets import BUDGETS
from logcl.methods import keeps

_NOTE = (
    "Accuracy over all classes after the last task, without task labels: mean ± standard error over seeds. "
    "Bytes: everything a method must keep to continue with the next task."
)


def _subset(results: Results) -> list[str]:
    """A note if not all data was used."""
    parts = sorted({f"{r.stream}: {r.subset}" for r in results if r.subset})
    return [f"Only a part of the data was used: {'; '.join(parts)}."] if parts else []


def table1(results: Results) -> list[Table]:
    """The paper's table 1 with our results beside it; best first on the stream with the most methods."""
    streams = sorted({result.stream for result in results})
    methods = {method: group_by(mine, lambda r: r.stream) for method, mine in _by_method(results).items()}
    ranked = sorted(streams, key=lambda stream: -sum(stream in found for found in methods.values()))
    records = []
    for method, found in sorted(
        methods.items(), key=lambda item: [-mean_accuracy(item[1].get(stream, [])) for stream in ranked]
    ):
        record = {"method": method}
        for stream in streams:
            mine = found.get(stream, [])
            record[f"{stream} %"] = accuracy(mine)
            record[f"{stream}, paper %"] = published(stream, method)
            record[f"{stream}, bytes"] = human_bytes(mean_bytes(mine)) if mine else "–"
        records.append(record | {"seeds": ", ".join(str(len(found.get(stream, []))) for stream in streams)})
    notes = [_NOTE]
    if own := sorted(set(methods) & {"curl", "hypercl", "vcl"}):
        which = f"except {', '.join(own)}, which use their published networks"
        notes.append(f"All methods train the same classifier, {which}.")
    return [Table.of("Table 1: MNIST and Omniglot", records, notes + _subset(results))]


def _by_method(results: Results) -> dict[str, list[Result]]:
    return group_by(results, lambda r: r.method)


def table2(results: Results) -> list[Table]:
    """The paper's table 2; a column says in which setting each row was measured."""
    groups = group_by(results, lambda r: (r.method, r.settings.preset))
    records = []
    for (method, preset), mine in sorted(groups.items(), key=lambda item: -mean_accuracy(item[1])):
        classifier = mine[0].settings.classifier
        records.append(
            {
                "method": method,
                "accuracy %": accuracy(mine),
                "paper %": published(mine[0].stream, method),
                "setting": preset if preset in BUDGETS else "offline",
                "samples kept": _samples_kept(mine[0]),
                "bytes kept": human_bytes(mean_bytes(mine)),
                "epochs": str(classifier.epochs),
                "network": f"{classifier.network}, {classifier.width} wide",
                "seeds": str(len(mine)),
            }
        )
    title = f"Table 2: CIFAR-100 in {len(results[0].tasks)} tasks"
    return [Table.of(title, records, [_NOTE, *_subset(results)])]


def _samples_kept(result: Result) -> str:
    kept = keeps(result.method)
    if kept == "all":
        return f"all {result.samples:,}"
    return (result.budget or "–") if kept == "budget" else "none"


def extreme(results: Results) -> list[Table]:
    """The paper's experiment with 100 tasks, after the last one."""
    groups = _by_method(results)
    raw = groups.get("replay-buffer")
    records = []
    for method, mine in sorted(groups.items(), key=lambda item: -mean_accuracy(item[1])):
        kept = mean_bytes(mine)
        records.append(
            {
                "method": method,
                "accuracy %": accuracy(mine),
                "bytes kept": human_bytes(kept),
                "% of the buffer": f"{100 * kept / mean_bytes(raw):.1f}" if raw else "–",
                "error (MSE)": spread([pooled(r.reconstruction).mse for r in mine if r.reconstruction], 4),
                "seconds": spread([sum(r.seconds.values()) for r in mine], 0),
                "seeds": str(len(mine)),
            }
        )
    notes = [_NOTE]
    if any(result.settings.classifier.warm_start for result in results):
        notes.append(
            "After each task the classifier is trained briefly from a warm start; joint training trains its "
            "classifier once, at the end."
        )
    title = f"Extreme: {len(results[0].tasks)} tasks, {len(results[0].classes)} characters"
    return [Table.of(title, records, notes + _subset(results))]


def psnr(result: Result) -> float | None:
    """PSNR of all replayed samples in dB; None for methods without replay to compare."""
    error = pooled(result.reconstruction).mse if result.reconstruction else 0.0
    return 10 * math.log10(1 / error) if error else None


def replayable(result: Result) -> int | None:
    """How many samples can be replayed; None for methods without replay to compare."""
    return sum(error.samples for error in result.reconstruction) or None


def storage(result: Result) -> str:
    """What the samples are stored as, for the `bytes` bench."""
    if codec := result.options.get("codec"):
        return str(codec)
    if result.has_levels:
        return f"{result.method}, {result.settings.preset}"
    return "raw samples" if keeps(result.method) == "budget" else result.method


def bytes_table(results: Results) -> list[Table]:
    """Accuracy and quality against bytes, one table per stream."""
    tables = []
    for stream, mine in sorted(group_by(results, lambda r: r.stream).items()):
        records = []
        for result in sorted(mine, key=lambda r: (storage(r), r.memory_bytes)):
            quality, kept = psnr(result), replayable(result)
            records.append(
                {
                    "storage": storage(result),
                    "bytes": human_bytes(result.memory_bytes),
                    "bytes per sample seen": f"{result.memory_bytes / result.samples:.0f}",
                    "samples kept %": "–" if kept is None else f"{100 * kept / result.samples:.0f}",
                    "accuracy %": f"{100 * result.final_accuracy:.2f}",
                    "PSNR dB": "–" if quality is None else f"{quality:.1f}",
                    "seed": str(result.seed),
                }
            )
        notes = ["PSNR of the samples that are kept.", *_subset(mine)]
        tables.append(Table.of(f"Accuracy against bytes: {stream}", records, notes))
    return tables


def growth(results: Results) -> list[Table]:
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
    "table1": table1, "table2": table2, "extreme": extreme, "bytes": bytes_table, "growth": growth,
}  # fmt: skip
