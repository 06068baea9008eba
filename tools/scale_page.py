"""Update the tables of docs/scale.md from the measured costs: `python tools/scale_page.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from logcl.cli.plan import codec_of
from logcl.core.text import human_bytes
from logcl.experiments.result import read
from logcl.experiments.table import Table
from logcl.memory.forecast.costs import Costs, Measured, measured, pick_costs
from logcl.memory.forecast.forecast import Load, forecast, growth
from logcl.memory.forecast.tables import format_time, growth_table, retraining_table, summary
from logcl.memory.presets import preset
from logcl.memory.settings import Settings

EXAMPLE = Load(
    image_shape=(3, 224, 224), samples=10**9, per_day=10**6, per_task=10**6, unit=128,
    nodes=64, cores=32, network=10,
)  # fmt: skip
"""The load that docs/scale.md describes."""
ROOT = Path(__file__).parent.parent
RUNS = (
    ROOT / "results" / "table2" / "full-cifar100-logcl-seed0.json",
    ROOT / "results" / "table1" / "full-mnist-logcl-seed0.json",
)


def page(text: str, found: Measured) -> str:
    """docs/scale.md with up-to-date tables between its markers."""
    for name, content in _sections(found).items():
        begin, end = f"<!-- scale:{name} -->\n", f"<!-- /scale:{name} -->"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise SystemExit(f"docs/scale.md has no markers for {name}; add {begin.strip()} and {end}")
        text = before + begin + content + end + after
    return text


def _sections(found: Measured) -> Mapping[str, str]:
    costs = _costs(preset("fast", EXAMPLE.image_shape), found)
    forecasts = growth(EXAMPLE, costs)
    return {
        "summary": _markdown([("what", "forecast"), *summary(EXAMPLE, forecasts[-1])]),
        "training": _markdown(retraining_table(EXAMPLE, forecasts[-1])),
        "tasks": _tasks(costs),
        "growth": _markdown(growth_table(forecasts)),
        "checked": _checked(found),
        "machine": _machine(found),
        "costs": _costs_tables(found),
    }


def _markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """A table whose first row has the names of the columns."""
    return Table("", rows[0], tuple(rows[1:])).markdown()


def _costs(settings: Settings, found: Measured) -> Costs:
    return pick_costs(settings.image_shape, *codec_of(settings), settings.classifier.width, found)


def _tasks(costs: Costs) -> str:
    """The same samples in smaller and larger tasks."""
    rows: list[tuple[str, ...]] = [
        ("samples per task", "encodings per sample", "mean day, one core", "worst day, one core")
    ]
    for size in (1, 1000, 40_000, 10**6, 7 * 10**6):
        got = forecast(EXAMPLE.model_copy(update={"per_task": size}), costs)
        day = format_time(got.day_mean.core_seconds)
        rows.append((f"{size:,}", f"{got.encodings:.1f}", day, format_time(got.day_worst.core_seconds)))
    return _markdown(rows)


def _checked(found: Measured) -> str:
    """Runs of `logcl bench` beside what would have been forecast for them."""
    rows: list[tuple[str, ...]] = [
        ("run", "", "samples fitted", "memory", "time absorbing, one core"),
    ]
    for path in RUNS:
        run = read(path)
        samples, tasks = sum(task.samples for task in run.tasks), len(run.tasks)
        size = -(-samples // tasks)
        shape, unit = run.settings.image_shape, run.settings.unit
        load = Load(image_shape=shape, samples=samples, per_day=size, per_task=size, unit=unit)
        got = forecast(load, _costs(run.settings, found))
        name = f"[{run.stream}](../{path.relative_to(ROOT)}), {tasks} tasks, {samples:,} samples"
        fitted = sum(task.trained or 0 for task in run.tasks)
        computed = f"{got.encodings * samples:,.0f}", human_bytes(got.memory_bytes)
        seconds = format_time(got.task_mean.core_seconds * tasks)
        happened = f"{fitted:,}", human_bytes(run.memory_bytes), format_time(run.seconds["absorb"])
        rows += [(name, "forecast", *computed, seconds), ("", "measured", *happened)]
    return _markdown(rows)


def _costs_tables(found: Measured) -> str:
    codecs: list[tuple[str, ...]] = [
        ("images", "shape", "codec", "fit, ms per sample", "encode, ms", "decode, ms", "decode at random, ms",
         "bytes per sample", "of raw", "bytes per level", "main memory per sample"),
    ]  # fmt: skip
    for row in found.codecs:
        share = 100 * row.sample_bytes / math.prod(row.image_shape)
        samples, seconds = row.fits[-1]
        codecs.append(
            (
                row.images,
                "x".join(map(str, row.image_shape)),
                f"{row.codec}, {row.network}" if row.network else row.codec,
                f"{1000 * seconds / samples:.3g}",
                f"{1000 * row.encode_seconds:.3g}" if row.encode_seconds else "–",
                f"{1000 * row.decode_seconds:.3g}",
                f"{1000 * row.fetch_seconds:.3g}",
                f"{row.sample_bytes:,.0f}",
                f"{share:.2g} %",
                human_bytes(row.level_bytes),
                human_bytes(row.ram_bytes),
            )
        )
    classifiers: list[tuple[str, ...]] = [
        ("global model", "images", "weights", "training, ms per sample and epoch")
    ]
    for model in found.classifiers:
        shape, seconds = "x".join(map(str, model.image_shape)), f"{1000 * model.train_seconds:.3g}"
        name = f"{model.network}, width {model.width}"
        classifiers.append((name, shape, f"{model.weights:,}", seconds))
    return _markdown(codecs) + "\n" + _markdown(classifiers)


def _machine(found: Measured) -> str:
    machine = found.machine
    return (
        f"Measured with `{machine['command']}` on {machine['date']}: one core of {machine['processor']}, "
        f"Python {machine['python']}, torch {machine['torch']}, numpy {machine['numpy']}.\n"
    )


if __name__ == "__main__":
    path = ROOT / "docs" / "scale.md"
    path.write_text(page(path.read_text(encoding="utf-8"), measured()), encoding="utf-8")
