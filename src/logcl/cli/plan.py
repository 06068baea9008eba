"""`logcl plan`: what one task would retrain or, with `--simulate`, what a memory of any size would take.

Settings and memories import torch, so only the forecast loads them.
"""

from __future__ import annotations

import os
import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logcl import allocation
from logcl.cli.console import JsonOption, out, parse_shape, print_json, print_table
from logcl.core.errors import BadSettings, Damaged
from logcl.core.settings import MOST_SAMPLES, parse_as
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.forecast.costs import Costs, measured, pick_costs
from logcl.memory.forecast.forecast import Load, growth
from logcl.memory.forecast.tables import growth_table, retraining_table, summary

if TYPE_CHECKING:
    from logcl.memory.settings import Settings

_SUFFIXES = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12}


def _option(help_text: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(help=help_text, metavar=metavar, rich_help_panel="With --simulate", **more)


def plan(
    path: Annotated[
        Path | None, typer.Argument(metavar="MEMORY", help="The memory file, e.g. pets.logcl.")
    ] = None,
    incoming: Annotated[int | None, typer.Option(min=1, help="Number of samples to absorb.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Forecast what a memory of any size would take instead.")
    ] = False,
    samples: Annotated[str | None, _option("Samples at the end, e.g. 1e9, 10^9 or 1G.", "N")] = None,
    per_day: Annotated[str | None, _option("Samples that arrive per day.", "N")] = None,
    per_task: Annotated[str | None, _option("Samples per task; those of a day by default.", "N")] = None,
    image_shape: Annotated[
        str | None, _option("Size of the images, e.g. 224 or 3x224x224, without a MEMORY.", "SIZE")
    ] = None,
    unit: Annotated[int | None, _option("Samples per unit, without a MEMORY.", min=1)] = None,
    nodes: Annotated[int, _option("Machines.", min=1)] = 1,
    cores: Annotated[int | None, _option("Cores per machine; those of this one by default.", min=1)] = None,
    network: Annotated[float, _option("Gbit/s in and out of each machine.", "GBIT")] = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show what absorbing a task would retrain, or forecast what a memory of any size would take."""
    if not simulate:
        if path is None or incoming is None:
            raise BadSettings("no task to plan; give a MEMORY and --incoming, or --simulate for a forecast")
        forecast_only = {
            "--samples": samples, "--per-day": per_day, "--per-task": per_task, "--unit": unit,
            "--image-shape": image_shape, "--nodes": nodes != 1, "--cores": cores, "--network": network != 10,
        }  # fmt: skip
        if given := next((name for name, value in forecast_only.items() if value), None):
            raise BadSettings(f"{given} is for a forecast; add --simulate")
        _show_task(path, incoming, as_json)
        return
    if incoming is not None:
        raise BadSettings("--incoming is for a single task; leave out --incoming or --simulate")
    if samples is None or per_day is None:
        raise BadSettings("--simulate needs --samples and --per-day, e.g. --samples 1e9 --per-day 1e6")
    settings, costs, start = _memory_costs(path, image_shape, unit)
    total, daily = parse_count("--samples", samples), parse_count("--per-day", per_day)
    if total <= start:
        raise BadSettings(
            f"{path} already holds {start:,} samples; --samples {samples} is the number at the end, give more"
        )
    load = {
        "image_shape": settings.image_shape, "unit": settings.unit, "start": start, "samples": total,
        "per_day": daily, "per_task": parse_count("--per-task", per_task) if per_task else daily,
        "nodes": nodes, "cores": cores or os.cpu_count() or 1, "network": network,
        "epochs": settings.classifier.epochs, "batch_size": settings.classifier.batch_size,
    }  # fmt: skip
    _show_forecast(parse_as(Load, load), costs, as_json)


def parse_count(option: str, value: str) -> int:
    """A number of samples, written as 1000, 1_000, 1,000, 1e9, 10^9, 2.5M or 1G."""
    plain = value.strip().lower().replace("_", "").replace(",", "")
    found = re.fullmatch(r"(\d{1,40}(?:\.\d{1,40})?)(?:e\+?(\d{1,2})|\^(\d{1,2})|([kmgt]))?", plain, re.ASCII)
    if found:
        number, exponent, power, suffix = found.groups()
        count = Fraction(number) ** int(power or 1) * 10 ** int(exponent or _SUFFIXES[suffix or ""])
        if count.denominator == 1 and 0 < count < MOST_SAMPLES:
            return int(count)
    raise BadSettings(
        f"{option} {value} is not a whole number from 1 to 2^62; write e.g. 1000000, 1e6, 10^6 or 1M"
    )


def _show_task(path: Path, incoming: int, as_json: bool) -> None:
    file = MemoryFile(path)
    fields = file.header().fields
    settings = fields.get("settings")
    n = fields.get("last", fields.get("n"))
    unit = settings.get("unit") if isinstance(settings, dict) else None
    if type(n) is not int or type(unit) is not int or not (0 <= n < MOST_SAMPLES and unit >= 1):
        raise Damaged(f"{file.path}: the header has no valid n and unit; run `logcl verify`")
    change = allocation.plan(n, n + incoming, unit)
    trained, replayed = (sum(slot.samples for slot in slots) for slots in (change.train, change.retire))
    slots = {"keep": change.keep, "retire": change.retire, "train": change.train}
    if as_json:
        levels = {name: [slot._asdict() for slot in group] for name, group in slots.items()}
        counts = {"samples_trained": trained, "samples_replayed": replayed}
        print_json({**levels, "buffer": len(change.buffer), **counts})
        return
    verbs = {"keep": "stays", "retire": "is replayed and retired", "train": "is trained"}
    parts = [(f"level {slot.level}", verbs[name], *slot[1:]) for name in slots for slot in slots[name]]
    if change.buffer:
        parts.append(("buffer", "waits", change.buffer[0], change.buffer[-1]))
    rows = [
        [part, verb, f"{start:,} to {stop:,}", f"{stop - start + 1:,}"] for part, verb, start, stop in parts
    ]
    print_table(["", "what", "samples", "count"], rows, f"{path}: {n:,} samples, {incoming:,} incoming")
    out.print(
        f"\n{trained:,} samples go through training, {replayed:,} of them replayed; "
        f"{len(change.keep)} level{'s' * (len(change.keep) != 1)} untouched."
    )


def codec_of(settings: Settings) -> tuple[str | None, str | None]:
    """The codec of a memory, None if it is not chosen yet, and its network, if it has one."""
    from logcl.codecs.base import AutoSettings

    codec = settings.codec
    return None if isinstance(codec, AutoSettings) else codec.name, getattr(codec, "network", None)


def _memory_costs(
    path: Path | None, image_shape: str | None, unit: int | None
) -> tuple[Settings, Costs, int]:
    """Settings, costs and samples of the memory at `path`, or of a new one."""
    from logcl.memory.memory import Memory
    from logcl.memory.presets import preset
    from logcl.memory.settings import override

    n, levels, total = 0, 0, 0
    if path is not None:
        if image_shape is not None or unit is not None:
            raise BadSettings(f"{path} has its own settings; leave out --image-shape and --unit")
        memory = Memory.open(path)
        settings, n = memory.settings, memory.n
        sizes = memory.file.sizes()
        levels = sum(name.startswith("level-") for name in sizes)
        total = sum(size for name, size in sizes.items() if name.startswith(("level-", "weights-")))
    elif image_shape is not None:
        settings = override(preset("fast", parse_shape(image_shape).shape()), {"unit": unit} if unit else {})
    else:
        raise BadSettings("--simulate needs a MEMORY or an --image-shape, e.g. --image-shape 3x224x224")
    costs = pick_costs(settings.image_shape, *codec_of(settings), settings.classifier.width)
    if path is not None and levels:  # the bytes of its own images
        codec = costs.codec
        fixed = codec.level_bytes if total > levels * codec.level_bytes else 0.0
        own = {
            "sample_bytes": (total - levels * fixed) / (n - n % settings.unit),
            "level_bytes": fixed,
            "images": f"bytes of {path.name}, times of {codec.images}",
        }
        costs = costs.model_copy(update={"codec": codec.model_copy(update=own)})
    return settings, costs, n


def _show_forecast(load: Load, costs: Costs, as_json: bool) -> None:
    forecasts, machine = growth(load, costs), measured().machine
    if as_json:
        steps = [forecast.model_dump(mode="json") for forecast in forecasts]
        given = {"load": load.model_dump(mode="json"), "costs": costs.model_dump(mode="json")}
        print_json({**given, "machine": machine, "forecast": steps[-1], "growth": steps})
        return
    for name, value in summary(load, forecasts[-1]):
        out.print(f"{name:<22}{value}")
    for columns, *rows in (retraining_table(load, forecasts[-1]), growth_table(forecasts)):
        out.print()
        print_table(columns, rows)
    model = costs.classifier
    out.print(
        f"\nCosts: {costs.codec.images}; {model.network} of width {model.width}; one core of "
        f"{machine['processor']}, {machine['date']}. Assumptions: docs/scale.md"
    )
