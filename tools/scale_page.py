"""The tables of docs/scale.md, from the measured costs; `bench/scale.py --write` writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from logcl.cli.forecast import lasting, tables
from logcl.core.text import human_bytes
from logcl.experiments.bench.table import Table
from logcl.experiments.result import read
from logcl.memory.forecast.costs import Costs, Measured, costs_of
from logcl.memory.forecast.forecast import Load
from logcl.memory.forecast.simulation import growth, simulate
from logcl.memory.presets import preset

THE_LOAD = Load(
    image_shape=(3, 224, 224), samples=10**9, per_day=10**6, per_task=10**6, unit=128,
    nodes=64, cores=32, network=10,
)  # fmt: skip
"""What docs/scale.md is about."""
ROOT = Path(__file__).parent.parent
RUNS = (
    ROOT / "results" / "table2" / "full-cifar100-logcl-seed0.json",
    ROOT / "results" / "table1" / "full-mnist-logcl-seed0.json",
)


def page(text: str, found: Measured) -> str:
    """docs/scale.md with what belongs between its markers."""
    for name, content in _sections(found).items():
        begin, end = f"<!-- scale:{name} -->\n", f"<!-- /scale:{name} -->"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise SystemExit(f"docs/scale.md has no place for {name}")
        text = before + begin + content + end + after
    return text


def _sections(found: Measured) -> Mapping[str, str]:
    costs = costs_of(preset("fast", THE_LOAD.image_shape), found)
    names = ("memory", "retraining", "worst", "ways", "global", "growth", "today")
    shown = tables(THE_LOAD, costs, growth(THE_LOAD, costs))
    sections = {name: table.markdown() for name, table in zip(names, shown, strict=True)}
    sections["global"] = f"{shown[4].title}.\n\n{sections['global']}"
    return sections | {
        "tasks": _tasks(costs),
        "checked": _checked(found),
        "costs": _costs_table(found),
        "machine": _machine(found),
    }


def _tasks(costs: Costs) -> str:
    """The same samples in smaller and larger tasks."""
    rows = []
    for size in (1, 1000, 40_000, 10**6, 7 * 10**6):
        load = THE_LOAD.model_copy(update={"per_task": size})
        found = simulate(load, costs)
        rows.append(
            (
                f"{size:,}",
                f"{load.per_day / size:,.7g}",
                f"{found.encodings:.1f}",
                lasting(found.day_seconds),
                lasting(found.worst_day_seconds),
                f"{found.task_encoded.median:,.0f}",
            )
        )
    columns = (
        "samples a task",
        "tasks a day",
        "encodings a sample",
        "a day, one core",
        "worst day, one core",
    )
    return Table("", (*columns, "median task, samples fitted"), tuple(rows)).markdown()


def _checked(found: Measured) -> str:
    """Runs of `logcl bench`, beside what would have been forecast for them."""
    rows = []
    for path in RUNS:
        run = read(path)
        samples, tasks = sum(task.samples for task in run.tasks), len(run.tasks)
        size = -(-samples // tasks)
        shape, unit = run.settings.image_shape, run.settings.unit
        load = Load(image_shape=shape, samples=samples, per_day=size, per_task=size, unit=unit)
        forecast = simulate(load, costs_of(run.settings, found))
        rows.append(
            (
                f"[{run.stream}](../{path.relative_to(ROOT)}), {tasks} tasks, {samples:,} samples",
                f"{forecast.encoded:,}",
                f"{sum(task.trained or 0 for task in run.tasks):,}",
                human_bytes(forecast.memory_bytes),
                human_bytes(run.memory_bytes),
                lasting(forecast.ways.today.seconds.mean * tasks),
                f"{lasting(run.seconds['absorb'])}, threads: {run.hardware['threads']}",
            )
        )
    columns = ("run", "samples fitted, forecast", "run: fitted", "bytes, forecast", "run: bytes")
    return Table("", (*columns, "seconds, forecast", "run: absorbing"), tuple(rows)).markdown()


def _costs_table(found: Measured) -> str:
    codecs = tuple(
        (
            row.images,
            "x".join(map(str, row.image_shape)),
            row.network,
            f"{1000 * row.fits[-1][1] / row.fits[-1][0]:.3g}",
            f"{1000 * row.decode_seconds:.3g}",
            f"{1000 * row.fetch_seconds:.3g}",
            f"{row.sample_bytes:,.0f}",
            f"{100 * row.sample_bytes / math.prod(row.image_shape):.2g} %",
            human_bytes(row.level_bytes),
            human_bytes(row.ram_bytes),
        )
        for row in found.codecs
    )
    columns = ("images", "shape", "codec", "fit, ms a sample", "decode, ms", "drawn at random, ms")
    columns += ("bytes a sample", "of raw", "bytes a level", "main memory a sample")
    classifiers = tuple(
        (
            f"{row.network}, {row.width} wide",
            "x".join(map(str, row.image_shape)),
            f"{row.weights:,}",
            f"{1000 * row.pass_seconds:.3g}",
        )
        for row in found.classifiers
    )
    file = found.file
    lines = (
        ("a commit of next to nothing", f"{1000 * file.commit_seconds:.3g} ms"),
        ("a commit, new levels in place of old ones", f"{human_bytes(file.commit_rate)} a second"),
        ("most disk during it, file and journal", f"{file.commit_disk:.2g} times the file after it"),
        ("opening: reading and checking", f"{human_bytes(file.load_rate)} a second"),
    )
    shown = (
        Table("", columns, codecs),
        Table("", ("global model", "images", "weights", "ms a sample and pass"), classifiers),
        Table("", ("memory file", "how much"), lines),
    )
    return "\n".join(table.markdown() for table in shown)


def _machine(found: Measured) -> str:
    machine = found.machine
    return (
        f"Measured with `{machine.command}` on {machine.date}: one core of {machine.processor}, Python "
        f"{machine.python}, torch {machine.torch}, numpy {machine.numpy}, SQLite {machine.sqlite}.\n"
    )
