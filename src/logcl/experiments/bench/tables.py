"""Each bench's results as the tables that a reader wants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from logcl import allocation
from logcl.core.text import human_bytes, spread
from logcl.experiments.bench.published import published
from logcl.experiments.bench.table import Table
from logcl.experiments.result import Result
from logcl.memory.presets import BUDGETS
from logcl.methods import keeps

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
    """The paper's table 1, ours beside it; best first on the stream that more methods have learned."""
    streams = sorted({result.stream for result in results})
    methods = by(results, lambda r: (r.method,))
    found = {
        (method, stream): [r for r in mine if r.stream == stream]
        for (method,), mine in methods.items()
        for stream in streams
    }

    def best_first(method: str) -> list[float]:
        means = [np.mean([r.final_accuracy for r in found[method, s]] or [-1.0]) for s in ranked]
        return [-float(mean) for mean in means]

    ranked = sorted(streams, key=lambda s: -sum(bool(found[method, s]) for (method,) in methods))
    rows = []
    for method in sorted((m for (m,) in methods), key=best_first):
        row = [method]
        for stream in streams:
            mine = found[method, stream]
            row += [_accuracy(mine), published(stream, method), _bytes(mine)]
        rows.append((*row, ", ".join(str(len(found[method, stream])) for stream in streams)))
    columns = ["method"]
    for stream in streams:
        columns += [f"{stream} %", f"{stream}, paper %", f"{stream}, bytes"]
    columns.append("seeds")
    notes = [_ACCURACY]
    if own := sorted({m for (m,) in methods} & {"curl", "hypercl", "vcl"}):
        notes.append(f"The same classifier throughout, but for {', '.join(own)}: the published networks.")
    notes += _part(results)
    return [Table("Table 1: MNIST and Omniglot", tuple(columns), tuple(rows), tuple(notes))]


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
    brief: tuple[str, ...] = ()
    if any(result.settings.classifier.warm_start for result in results):
        brief = ("The classifier goes on briefly after each task; that of joint training is trained once.",)
    return [Table(title, columns, tuple(rows), (_ACCURACY, *brief, *_part(results)))]


def _error(result: Result) -> float:
    """Mean squared error over all samples."""
    counts = [e.samples for e in result.reconstruction]
    return float(np.average([e.mse for e in result.reconstruction], weights=counts))


def psnr(result: Result) -> float | None:
    """Of all that is replayed, in dB; None for methods that do not show their samples."""
    if not result.reconstruction or not _error(result):
        return None
    return 10 * math.log10(1 / _error(result))


def replayable(result: Result) -> int | None:
    """How many samples a method gives back; None for methods that do not show them."""
    return sum(error.samples for error in result.reconstruction) or None


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
            seen = sum(task.samples for task in result.tasks)
            quality, kept = psnr(result), replayable(result)
            rows.append(
                (
                    kind(result),
                    human_bytes(result.memory_bytes),
                    f"{result.memory_bytes / seen:.0f}",
                    "–" if kept is None else f"{100 * kept / seen:.0f}",
                    f"{100 * result.final_accuracy:.2f}",
                    "–" if quality is None else f"{quality:.1f}",
                    str(result.seed),
                )
            )
        columns = (
            "what is kept", "bytes", "bytes a sample seen", "samples kept %", "accuracy %", "PSNR dB", "seed",
        )  # fmt: skip
        notes = ("PSNR is that of the samples kept.", *_part(mine))
        tables.append(Table(f"Accuracy against bytes: {stream}", columns, tuple(rows), notes))
    return tables


@dataclass(frozen=True)
class Planned:
    """What allocation alone says of n samples that came in tasks of one size."""

    n: int
    tasks: int
    models: int
    fitted: int
    """Samples that went through a fit, over all tasks so far."""
    replayed: int
    """How many of those had been encoded before."""
    alone: int
    """Samples fitted by a single model of everything that is retrained at each task."""
    most: int
    """Re-encodings of a sample at most."""


def planned(upto: int, unit: int, task: int) -> list[Planned]:
    """At n = 1, 2, 5 · 10^k, or the last task before. Nothing is trained."""
    marks = {m * 10**k for k in range(2, 1 + len(str(upto))) for m in (1, 2, 5)}
    marks = {mark - mark % task for mark in marks if task <= mark <= upto}
    found, fitted, replayed, alone = [], 0, 0, 0
    for tasks, n in enumerate(range(task, upto + 1, task), start=1):
        plan = allocation.plan(n - task, n, unit)
        fitted += sum(slot.samples for slot in plan.train)
        replayed += sum(slot.samples for slot in plan.retire)
        alone += n
        if n in marks:
            models = len(allocation.layout(n, unit))
            most = allocation.max_generation(n, unit)
            found.append(Planned(n, tasks, models, fitted, replayed, alone, most))
    return found


def growth(results: Results) -> list[Table]:
    """What was measured, and what allocation says up to a million samples."""
    rows = []
    for result in sorted(results, key=lambda r: (r.method, r.seed)):
        n = sum(task.samples for task in result.tasks)
        fitted = sum(task.trained for task in result.tasks)
        seconds = [task.seconds.get("absorb", 0.0) for task in result.tasks]
        half = len(seconds) // 2
        rows.append(
            (
                result.method,
                f"{n:,}",
                str(len(result.tasks)),
                str(result.tasks[-1].models),
                f"{fitted / len(result.tasks):,.0f}",
                f"{fitted / n:.1f}",
                f"{sum(task.replayed for task in result.tasks) / n:.1f}",
                str(max((e.generation for e in result.reconstruction), default=0)),
                f"{np.mean(seconds[:half]):.2f}",
                f"{np.mean(seconds[half:]):.2f}",
                f"{sum(seconds):.0f}",
            )
        )
    columns = (
        "method", "samples", "tasks", "models", "fitted a task", "fits a sample", "replays a sample",
        "most re-encodings", "s a task, first half", "second half", "s in all",
    )  # fmt: skip
    measured = Table("Growth, measured", columns, tuple(rows), _part(results))
    unit = results[0].settings.unit
    task = max(round(np.mean([t.samples for t in results[0].tasks])), 1)
    plan = Table(
        f"Growth, planned: units of {unit:,}, tasks of {task:,} samples",
        (
            "samples", "models", "fitted a task, LogCL", "fitted a task, one model", "fits a sample, LogCL",
            "fits a sample, one model", "replays a sample, LogCL", "most re-encodings",
        ),
        tuple(
            (
                f"{p.n:,}",
                str(p.models),
                f"{p.fitted / p.tasks:,.0f}",
                f"{p.alone / p.tasks:,.0f}",
                f"{p.fitted / p.n:.1f}",
                f"{p.alone / p.n:.1f}",
                f"{p.replayed / p.n:.1f}",
                str(p.most),
            )
            for p in planned(10**6, unit, task)
        ),
        ("A model of everything that is retrained at each task fits every sample n / task size / 2 times.",),
    )  # fmt: skip
    return [measured, plan]


_ACCURACY = (
    "Accuracy over all classes after the last task, no task label given: mean ± standard error over seeds. "
    "Bytes are all that a method needs to go on."
)

TABLES: dict[str, Callable[[Results], list[Table]]] = {
    "table1": table1, "table2": table2, "extreme": extreme, "bytes": bytes_table, "growth": growth,
}  # fmt: skip
