"""A forecast as tables, for the terminal and for docs/scale.md."""

from __future__ import annotations

from collections.abc import Sequence

from logcl.core import text as words
from logcl.experiments.bench.table import Table
from logcl.memory.file.sqlite import PAGE
from logcl.memory.forecast.costs import Costs
from logcl.memory.forecast.forecast import Forecast, Load, Retraining, Way
from logcl.memory.forecast.simulation import DAY, MOST_PAGES, MOST_PART


def tables(load: Load, costs: Costs, on_the_way: Sequence[Forecast]) -> list[Table]:
    """What an engineer asks for, the most important first; the last forecast is that of the whole load."""
    found = on_the_way[-1]
    return [
        _memory(load, found),
        _retraining(load, found),
        _worst(load, found),
        _ways(load, found),
        _global_model(load, costs, found),
        _growth(load, on_the_way),
        _today(load, costs, found),
    ]


def _memory(load: Load, found: Forecast) -> Table:
    counter = f"{load.samples // load.unit:b}"
    new = load.elsewhere * load.per_day * load.values
    rows = [
        ("samples", f"{load.samples:,}, {_shape(load)}; {load.per_day:,} a day, {_number(found.days)} days"),
        ("tasks", f"{found.tasks:,} of {load.per_task:,} samples; units of {load.unit:,}"),
        ("levels", f"{len(found.levels)} in use, one for each 1 of b{counter}"),
        ("the largest", f"{found.top_samples:,} samples, {human_bytes(found.top_bytes)}"),
        ("bytes", f"{human_bytes(found.memory_bytes)}, {_share(found.memory_bytes / found.raw_bytes)} of "
         f"{human_bytes(found.raw_bytes)} raw"),
        ("encodings a sample", f"{found.encodings:.1f} on average, the first included; at most "
         f"{found.most_reencodings} more than the first"),
        ("retraining a day", f"{_number(found.day_encoded)} samples on average: {lasting(found.day_seconds)} "
         f"on one core, {lasting(found.day_seconds / _cores(load))} on {_cores(load):,}"),
    ]  # fmt: skip
    if load.nodes > 1:
        rows.append(
            ("network a day", f"{human_bytes(new)} of new images to the nodes that keep them, on average")
        )
    return Table("The memory", ("what", ""), tuple(rows))


def _retraining(load: Load, found: Forecast) -> Table:
    samples, seconds = found.task_encoded, found.task_seconds
    figures = (
        ("a task, median", samples.median, seconds.median),
        ("a task, mean", samples.mean, seconds.mean),
        ("a task, 99 of 100 at most", samples.high, seconds.high),
        ("a task, worst", samples.worst, seconds.worst),
        ("a day, mean", found.day_encoded, found.day_seconds),
        ("a day, worst", found.worst_day_encoded, found.worst_day_seconds),
        ("a day at the end, one model of everything", load.samples * load.per_day / load.per_task,
         found.one_model_day_seconds),
    )  # fmt: skip
    rows = tuple(
        (name, _number(fitted), lasting(spent), lasting(spent / _cores(load)))
        for name, fitted, spent in figures
    )
    columns = ("retraining", "samples fitted", "one core", f"{load.nodes:,} x {load.cores:,} cores")
    return Table("Retraining", columns, rows)


def _worst(load: Load, found: Forecast) -> Table:
    worst = found.worst
    levels = ", ".join(map(str, worst.levels)) or "none"
    rows = (
        ("when", f"day {_number(worst.day)}, from {worst.before:,} to {worst.after:,} samples"),
        ("levels fitted", levels),
        ("samples fitted", f"{worst.encoded:,}"),
        ("main memory, all in one process as today", human_bytes(worst.ram_bytes)),
        ("main memory of a node that fits its share", human_bytes(worst.ram_bytes / load.nodes)),
        ("disk during the commit, all nodes together", human_bytes(worst.disk_bytes)),
        ("images that come meanwhile", f"{worst.waiting:,}, {human_bytes(worst.waiting * load.values)} raw"),
        ("the next that fits everything",
         f"at {found.next_carry:,} samples, {_number(found.next_carry_days)} days after the end"),
    )  # fmt: skip
    return Table("The worst task", ("what", ""), rows)


def _ways(load: Load, found: Forecast) -> Table:
    names = {
        "today": "today: one file, a level on one core, pixels travel",
        "codes": "one file, a level on all cores, codes travel",
        "shares": "each node keeps its share of every level",
    }
    if load.nodes == 1:
        names = {"today": "today: a task on one core", "shares": "a task on all cores"}
    rows = tuple((name, *_way(getattr(found.ways, key))) for key, name in names.items())
    columns = ("memory and work", "network a day", "network, worst task", "mean task", "worst task", "busy")
    notes: tuple[str, ...] = ()
    if any(getattr(found.ways, key).busy > 1 for key in names):
        notes = ("Where it is busy more than 100 % of the time, tasks pile up: that way does not keep up.",)
    return Table("Ways to spread it", columns, rows, notes)


def _way(way: Way) -> tuple[str, ...]:
    return (
        human_bytes(way.traffic),
        human_bytes(way.worst_traffic),
        lasting(way.seconds.mean),
        lasting(way.seconds.worst),
        _share(way.busy),
    )


def _global_model(load: Load, costs: Costs, found: Forecast) -> Table:
    ways = {"as `logcl train` does, one batch for all nodes": found.retraining}
    if load.nodes > 1:
        ways["a batch for each node"] = found.retraining_wide
    rows = tuple((name, *_trained(way)) for name, way in ways.items())
    cluster = f"{load.nodes:,} x {load.cores:,} cores"
    columns = ("once", "batch", "steps", "one core", cluster, "network a node")
    model = costs.classifier
    title = (
        f"The global model: {model.network}, {model.width} wide, {model.weights:,} weights, "
        f"{costs.passes} passes over replay"
    )
    return Table(title, columns, rows)


def _trained(way: Retraining) -> tuple[str, ...]:
    return (
        f"{way.batch:,}",
        f"{way.steps:,}",
        lasting(way.core_seconds),
        lasting(way.seconds),
        human_bytes(way.node_bytes),
    )


def _growth(load: Load, on_the_way: Sequence[Forecast]) -> Table:
    rows = tuple(
        (
            f"{found.raw_bytes // load.values:,}",
            str(len(found.levels)),
            human_bytes(found.memory_bytes),
            f"{found.encodings:.1f}",
            str(found.most_reencodings),
            lasting(found.day_seconds),
            lasting(found.task_seconds.worst),
            f"{found.one_model_encodings:,.1f}",
            lasting(found.retraining.core_seconds),
        )
        for found in on_the_way
    )
    columns = (
        "samples", "levels", "bytes", "encodings a sample", "most re-encodings", "a day, one core",
        "worst task, one core", "encodings, one model", "global model, one core",
    )  # fmt: skip
    return Table("How it grows", columns, rows)


def _today(load: Load, costs: Costs, found: Forecast) -> Table:
    today, top = found.today, found.levels[0] if found.levels else 0
    size = MOST_PAGES * PAGE
    rows = (
        (f"a level is one row of SQLite: {human_bytes(MOST_PART)}",
         f"level {today.top_level}; {today.level_samples:,} samples", f"level {top}"),
        (f"a memory is one file of 2^30 pages: {human_bytes(size)}",
         f"{today.file_samples:,} samples", f"{load.samples:,}"),
        ("a task is absorbed by one process, all it fits in main memory",
         f"{human_bytes(costs.codec.ram_bytes)} a sample", human_bytes(found.worst.ram_bytes)),
        ("a level is fitted on one core", f"{_number(_rate(costs))} samples a second",
         lasting(found.ways.today.seconds.worst)),
        ("a new process reads the whole memory before it absorbs",
         f"{human_bytes(costs.file.load_rate)} a second", lasting(today.load_seconds)),
    )  # fmt: skip
    if today.files == 1:
        note = "One memory file can hold it."
    else:
        note = (
            f"What works as it is: {today.files:,} memories side by side of up to "
            f"{min(today.level_samples, today.file_samples):,} samples, each with at most "
            f"{human_bytes(today.ram_bytes)} of main memory for its worst task."
        )
    return Table("What there is today", ("as it is", "goes up to", "here"), rows, (note,))


def _rate(costs: Costs) -> float:
    samples, seconds = costs.codec.fits[-1]
    return samples / seconds


def _cores(load: Load) -> int:
    return load.nodes * load.cores


def _shape(load: Load) -> str:
    return "x".join(map(str, load.image_shape))


def _number(value: float) -> str:
    """1,234,567 or 12.3."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _share(value: float) -> str:
    """12.3 %, 1,234 %."""
    percent = 100 * value
    return f"{percent:,.0f} %" if percent >= 100 else f"{percent:.2g} %"


def human_bytes(count: float) -> str:
    """As everywhere, and beyond."""
    for power, name in ((18, "EB"), (15, "PB")):
        if count >= 10**power:
            return f"{count / 10**power:,.3g} {name}"
    return words.human_bytes(count)


def lasting(seconds: float) -> str:
    """12 s, 3.4 min, 1.2 h, 5.6 days, 78 years."""
    if seconds < 2 * DAY:
        return words.human_seconds(seconds)
    days = seconds / DAY
    return f"{_number(days)} days" if days < 1000 else f"{_number(days / 365.25)} years"
