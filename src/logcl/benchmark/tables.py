"""Each bench's results as the tables that a reader wants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from logcl import allocation
from logcl.benchmark.published import published
from logcl.benchmark.table import Table
from logcl.methods import keeps
from logcl.presets import BUDGETS
from logcl.result import Result
from logcl.words import human_bytes, spread

Results = Sequence[Result]


def by(results: Results, key: Callable[[Result], tuple[str, ...]]) -> dict[tuple[str, ...], list[Result]]:
    """Results that have the same key, in the order of their first."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def _accuracy(results: Results) -> str:
    return spread([100 * result.final_accuracy for result in results])


def _bytes(results: Results) -> str:
    return human_bytes(float(np.mean([r.memory_bytes for r in results]))) if results else "–"


def _part(results: Results) -> tuple[str, ...]:
    """Says openly if not all data was used."""
    parts = sorted({f"{r.stream}: {r.subset}" for r in results if r.subset})
    return (f"A part of the data: {'; '.join(parts)}.",) if parts else ()


def table1(results: Results) -> list[Table]:
    """The paper's table 1, ours beside it."""
    streams = sorted({result.stream for result in results})
    rows = []
    methods = by(results, lambda r: (r.method,))
    best = sorted(methods, key=lambda m: -np.mean([r.final_accuracy for r in methods[m]]))
    for (method,) in best:
        row = [method]
        for stream in streams:
            mine = [r for r in methods[method,] if r.stream == stream]
            row += [_accuracy(mine), published(stream, method), _bytes(mine), str(len(mine))]
        rows.append(tuple(row))
    columns = ["method"]
    for stream in streams:
        columns += [f"{stream} %", f"{stream}, paper %", f"{stream}, bytes", f"{stream}, seeds"]
    return [Table("Table 1: MNIST and Omniglot", tuple(columns), tuple(rows), (_ACCURACY, *_part(results)))]


def table2(results: Results) -> list[Table]:
    """The paper's table 2; the setting of every row is a column."""
    rows = []
    groups = by(results, lambda r: (r.method, r.settings.preset))
    for (method, preset), mine in sorted(
        groups.items(), key=lambda group: -np.mean([r.final_accuracy for r in group[1]])
    ):
        classifier = mine[0].settings.classifier
        rows.append(
            (
                method,
                _accuracy(mine),
                published(mine[0].stream, method),
                preset if preset in BUDGETS else "offline",
                _samples_kept(mine[0]),
                _bytes(mine),
                str(classifier.epochs),
                f"{classifier.network}, {classifier.width} wide",
                str(len(mine)),
            )
        )
    columns = (
        "method", "accuracy %", "paper %", "setting", "samples kept", "bytes kept", "passes", "network",
        "seeds",
    )  # fmt: skip
    title = f"Table 2: CIFAR-100 in {len(results[0].tasks)} tasks"
    return [Table(title, columns, tuple(rows), (_ACCURACY, *_part(results)))]


def _samples_kept(result: Result) -> str:
    kept = keeps(result.method)
    if kept == "all":
        return f"all {sum(task.samples for task in result.tasks):,}"
    return (result.budget or "–") if kept == "budget" else "none"


def extreme(results: Results) -> list[Table]:
    """The paper's experiment of 100 tasks, at its end."""
    groups = by(results, lambda r: (r.method,))
    raw = [r.memory_bytes for r in groups.get(("replay-buffer",), [])]
    rows = []
    for (method,), mine in sorted(groups.items(), key=lambda g: -np.mean([r.final_accuracy for r in g[1]])):
        held = float(np.mean([r.memory_bytes for r in mine]))
        rows.append(
            (
                method,
                _accuracy(mine),
                human_bytes(held),
                f"{100 * held / np.mean(raw):.1f}" if raw else "–",
                spread([_error(r) for r in mine if r.reconstruction], 4),
                spread([sum(r.seconds.values()) for r in mine], 0),
                str(len(mine)),
            )
        )
    first = results[0]
    title = f"Extreme: {len(first.tasks)} tasks, {len(first.classes)} characters"
    columns = ("method", "accuracy %", "bytes kept", "of the buffer %", "error (MSE)", "seconds", "seeds")
    return [Table(title, columns, tuple(rows), (_ACCURACY, *_part(results)))]


def _error(result: Result) -> float:
    """Mean squared error over all samples."""
    counts = [e.samples for e in result.reconstruction]
    return float(np.average([e.mse for e in result.reconstruction], weights=counts))


def psnr(result: Result) -> float | None:
    """Of all that is replayed, in dB; None for methods that do not show their samples."""
    if not result.reconstruction or not _error(result):
        return None
    return 10 * math.log10(1 / _error(result))


def kind(result: Result) -> str:
    """What holds the samples, in the words of the `bytes` bench."""
    if result.method == "codec-buffer":
        return str(result.options["codec"])
    if result.method == "logcl":
        return f"logcl, {result.settings.preset}"
    return {"gdumb": "raw samples"}.get(result.method, result.method)


def bytes_table(results: Results) -> list[Table]:
    """Accuracy and quality by bytes, one table a stream."""
    tables = []
    for (stream,), mine in sorted(by(results, lambda r: (r.stream,)).items()):
        rows = []
        for result in sorted(mine, key=lambda r: (kind(r), r.memory_bytes)):
            samples = sum(task.samples for task in result.tasks)
            quality = psnr(result)
            rows.append(
                (
                    kind(result),
                    human_bytes(result.memory_bytes),
                    f"{result.memory_bytes / samples:.0f}",
                    f"{100 * result.final_accuracy:.2f}",
                    "–" if quality is None else f"{quality:.1f}",
                    str(result.seed),
                )
            )
        columns = ("what is kept", "bytes", "bytes a sample seen", "accuracy %", "PSNR dB", "seed")
        tables.append(Table(f"Accuracy against bytes: {stream}", columns, tuple(rows), _part(mine)))
    return tables


def planned(upto: int, unit: int, task: int) -> list[tuple[int, int, int, int, int]]:
    """(n, models, samples fitted so far, by a single model, most re-encodings) at n = 1, 2, 5 · 10^k.

    Tasks of `task` samples. Nothing is trained: allocation alone decides.
    """
    marks = {m * 10**k for k in range(2, 1 + len(str(upto))) for m in (1, 2, 5)}
    marks = {mark - mark % task for mark in marks if task <= mark <= upto}
    found, ours, single = [], 0, 0
    for n in range(task, upto + 1, task):
        ours += sum(slot.samples for slot in allocation.plan(n - task, n, unit).train)
        single += n
        if n in marks:
            models = len(allocation.layout(n, unit))
            found.append((n, models, ours, single, allocation.max_generation(n, unit)))
    return found


def growth(results: Results) -> list[Table]:
    """What was measured, and what allocation says up to a million samples."""
    rows = []
    for result in sorted(results, key=lambda r: (r.method, r.seed)):
        n = sum(task.samples for task in result.tasks)
        seconds = [task.seconds.get("absorb", 0.0) for task in result.tasks]
        half = len(seconds) // 2
        rows.append(
            (
                result.method,
                f"{n:,}",
                str(len(result.tasks)),
                str(result.tasks[-1].models),
                f"{sum(task.trained for task in result.tasks) / n:.1f}",
                str(max((e.generation for e in result.reconstruction), default=0)),
                f"{np.mean(seconds[:half]):.2f}",
                f"{np.mean(seconds[half:]):.2f}",
                f"{sum(seconds):.0f}",
            )
        )
    columns = (
        "method", "samples", "tasks", "models", "fits a sample", "most re-encodings", "s a task, first half",
        "second half", "s in all",
    )  # fmt: skip
    measured = Table("Growth, measured", columns, tuple(rows), _part(results))
    unit = results[0].settings.unit
    task = max(round(np.mean([t.samples for t in results[0].tasks])), 1)
    plan = Table(
        f"Growth, planned: units of {unit:,}, tasks of {task:,} samples",
        ("samples", "models", "fits a sample, LogCL", "one model", "most re-encodings"),
        tuple(
            (f"{n:,}", str(models), f"{ours / n:.1f}", f"{single / n:.1f}", str(most))
            for n, models, ours, single, most in planned(10**6, unit, task)
        ),
        ("A model of everything that is retrained at each task fits every sample n / task size / 2 times.",),
    )
    return [measured, plan]


_ACCURACY = (
    "Accuracy over all classes after the last task, no task label given: mean ± standard error over seeds. "
    "Bytes are all that a method needs to go on."
)

TABLES: dict[str, Callable[[Results], list[Table]]] = {
    "table1": table1, "table2": table2, "extreme": extreme, "bytes": bytes_table, "growth": growth,
}  # fmt: skip
