"""A forecast as text, for the terminal and for docs/scale.md."""

from __future__ import annotations

from collections.abc import Sequence

from logcl.core.text import human_bytes, human_seconds
from logcl.memory.forecast.forecast import DAY, MAX_FILE, MAX_ROW, Forecast, Load


def summary(load: Load, found: Forecast) -> list[tuple[str, str]]:
    """What the memory takes and where it ends, as names and values."""
    shape, units = "x".join(map(str, load.image_shape)), load.samples // load.unit
    share = 100 * found.memory_bytes / found.raw_bytes
    counted = f", counted as tasks of {found.task_samples:,}" * (found.task_samples != load.per_task)
    queue = ", so tasks queue up" * (found.busy > 1)
    before, after = found.worst
    day, days_left = (after - load.start) / load.per_day, (found.next_rebuild - load.samples) / load.per_day
    levels = ", ".join(map(str, found.worst_levels)) or "none"
    limits = f"a level has at most {human_bytes(MAX_ROW)}, a file {human_bytes(MAX_FILE)}"
    return [
        ("samples", f"{load.start:,} to {load.samples:,} of {shape} in {_number(found.days)} days"),
        ("tasks", f"{found.tasks:,} of {load.per_task:,} samples{counted}"),
        (
            "memory",
            f"{human_bytes(found.memory_bytes)}, {_number(share)} % of {human_bytes(found.raw_bytes)} raw",
        ),
        ("levels", f"{len(found.levels)}, one per 1-bit of {units:b}; units of {load.unit:,} samples"),
        ("encodings per sample", f"{found.encodings:.1f} on average, {found.max_encodings} at most"),
        ("time absorbing", f"{_number(100 * found.busy)} % of each day{queue}"),
        ("worst task", f"day {_number(day)}, from {before:,} to {after:,} samples"),
        ("levels it fits", levels),
        ("main memory it needs", human_bytes(found.worst_ram_bytes)),
        ("next full rebuild", f"at {found.next_rebuild:,} samples, {_number(days_left)} days after the end"),
        ("limit of one file", f"{found.file_samples:,} samples; {limits}"),
        ("files needed", f"{found.files:,}"),
    ]


def retraining_table(load: Load, found: Forecast) -> list[tuple[str, ...]]:
    """What tasks, days and the global model take; columns first."""
    rows: list[tuple[str, ...]] = [
        ("training", "samples", "one core", f"{load.nodes:,} x {load.cores:,} cores", "network")
    ]
    for name, work in (
        ("task, mean", found.task_mean),
        ("task, worst", found.task_worst),
        ("day, mean", found.day_mean),
        ("day, worst", found.day_worst),
        (f"global model, {load.epochs} epochs", found.global_model),
    ):
        times = format_time(work.core_seconds), format_time(work.seconds)
        rows.append((name, _number(work.samples), *times, human_bytes(work.network_bytes)))
    return rows


def growth_table(forecasts: Sequence[Forecast]) -> list[tuple[str, ...]]:
    """How the figures grow with the number of samples; columns first."""
    columns = (
        "samples", "levels", "memory", "encodings per sample", "at most", "with one model",
        "mean day, one core", "worst task, one core", "global model, one core",
    )  # fmt: skip
    rows = []
    for found in forecasts:
        counts = f"{found.encodings:.1f}", str(found.max_encodings), f"{found.one_model_encodings:,.1f}"
        works = found.day_mean, found.task_worst, found.global_model
        times = (format_time(work.core_seconds) for work in works)
        memory = human_bytes(found.memory_bytes)
        rows.append((f"{found.samples:,}", str(len(found.levels)), memory, *counts, *times))
    return [columns, *rows]


def _number(value: float) -> str:
    """1,234,567 or 12.3."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def format_time(seconds: float) -> str:
    """12 s, 3.4 min, 1.2 h, 5.6 days, 78 years."""
    if (days := seconds / DAY) < 2:
        return human_seconds(seconds)
    return f"{_number(days)} days" if days < 1000 else f"{_number(days / 365.25)} years"
