"""`logcl plan`: what a task would retrain, and with `--simulate` what a memory of any size would take."""

from __future__ import annotations

import os
import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from logcl.cli.console import JsonOption, out, parse_shape, print_json, print_table
from logcl.cli.forecast import tables
from logcl.core.errors import BadSettings
from logcl.core.settings import MOST_SAMPLES, parse_as
from logcl.memory.forecast.costs import Costs, costs_of, measured
from logcl.memory.forecast.forecast import Load
from logcl.memory.forecast.simulation import growth
from logcl.memory.memory import Memory
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, override

_FORECAST = "With --simulate"
_SUFFIXES = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12}


def plan(
    path: Annotated[
        Path | None, typer.Argument(metavar="MEMORY", help="The memory file, e.g. pets.logcl.")
    ] = None,
    incoming: Annotated[int | None, typer.Option(min=1, help="How many samples would come.")] = None,
    simulated: Annotated[
        bool, typer.Option("--simulate", help="Instead forecast a memory of any size, on any machines.")
    ] = False,
    samples: Annotated[
        str | None,
        typer.Option(metavar="N", help="Held in the end, e.g. 1e9, 10^9 or 1G.", rich_help_panel=_FORECAST),
    ] = None,
    per_day: Annotated[
        str | None, typer.Option(metavar="N", help="Samples that come in a day.", rich_help_panel=_FORECAST)
    ] = None,
    per_task: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Samples absorbed together; a day's by default.", rich_help_panel=_FORECAST
        ),
    ] = None,
    image_shape: Annotated[
        str | None,
        typer.Option(metavar="CxHxW", help="Of the images, without a MEMORY.", rich_help_panel=_FORECAST),
    ] = None,
    unit: Annotated[
        int | None,
        typer.Option(min=1, help="Samples in a unit, without a MEMORY.", rich_help_panel=_FORECAST),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.", rich_help_panel=_FORECAST)] = 1,
    cores: Annotated[
        int | None,
        typer.Option(min=1, help="Of each machine; by default those of this one.", rich_help_panel=_FORECAST),
    ] = None,
    network: Annotated[
        float,
        typer.Option(metavar="GBIT", help="Gbit/s in and out of a machine.", rich_help_panel=_FORECAST),
    ] = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show what absorbing so many samples would retrain, or what a memory of any size would take."""
    if not simulated:
        if path is None or incoming is None:
            raise BadSettings("give a MEMORY and --incoming, or --simulate for one that does not exist yet")
        asked = {
            "--samples": samples, "--per-day": per_day, "--per-task": per_task, "--unit": unit,
            "--image-shape": image_shape, "--nodes": nodes != 1, "--cores": cores, "--network": network != 10,
        }  # fmt: skip
        if given := next((name for name, value in asked.items() if value), None):
            raise BadSettings(f"{given} is for a forecast; say --simulate as well")
        _show_task(path, incoming, as_json)
        return
    if incoming is not None:
        raise BadSettings("--incoming is one task, --simulate a row of them; leave one out")
    if samples is None or per_day is None:
        raise BadSettings("--simulate needs --samples and --per-day, e.g. --samples 1e9 --per-day 1e6")
    daily = parse_count("--per-day", per_day)
    settings, costs, start = _costs(path, image_shape, unit)
    total = parse_count("--samples", samples)
    load = {
        "image_shape": settings.image_shape, "unit": settings.unit, "start": start, "samples": total,
        "per_day": daily, "per_task": parse_count("--per-task", per_task) if per_task else daily,
        "nodes": nodes, "cores": cores or os.cpu_count() or 1, "network": network,
    }  # fmt: skip
    if total <= start:
        raise BadSettings(
            f"--samples {samples} is how many {path} shall hold in the end; it holds {start:,} already"
        )
    _show_forecast(parse_as(Load, load), costs, as_json, path)


def parse_count(option: str, text: str) -> int:
    """1000, 1_000, 1,000, 1e9, 10^9, 2.5M, 1G: a whole number of samples."""
    plain = text.strip().lower().replace("_", "").replace(",", "")
    found = re.fullmatch(r"(\d{1,40}(?:\.\d{1,40})?)(?:e\+?(\d{1,2})|\^(\d{1,2})|([kmgt]))?", plain)
    if found:
        number, exponent, power, suffix = found.groups()
        value = Fraction(number) ** int(power or 1) * 10 ** int(exponent or _SUFFIXES[suffix or ""])
        if value.denominator == 1 and 0 < value < MOST_SAMPLES:
            return int(value)
    raise BadSettings(f"{option} {text} is not a whole number from 1 to 2^62, e.g. 1000000, 1e6, 10^6 or 1M")


def _costs(path: Path | None, image_shape: str | None, unit: int | None) -> tuple[Settings, Costs, int]:
    """Settings, costs and samples of a memory that exists, or of one that would be created."""
    if path is None:
        if image_shape is None:
            raise BadSettings("--simulate needs a MEMORY or an --image-shape, e.g. --image-shape 3x224x224")
        settings = preset("fast", parse_shape(image_shape))
        if unit is not None:
            settings = override(settings, {"unit": unit})
        return settings, costs_of(settings), 0
    for option, value in (("--image-shape", image_shape), ("--unit", unit)):
        if value is not None:
            raise BadSettings(f"{path} has its own settings; leave {option} out")
    memory = Memory.open(path)
    return memory.settings, _own_bytes(memory, costs_of(memory.settings)), memory.n


def _own_bytes(memory: Memory, costs: Costs) -> Costs:
    """The bytes of a sample as they are in this memory, once it has levels."""
    levels = [size for name, size in memory.file.sizes().items() if name.startswith("level-")]
    settings, n = memory.settings, memory.n
    held = n - n % settings.unit
    if not held:
        return costs
    fixed = costs.codec.level_bytes
    if sum(levels) <= len(levels) * fixed:  # so few samples that they are lost in what a level takes
        fixed = 0.0
    own = (sum(levels) - len(levels) * fixed) / held
    images = f"its own bytes, seconds of {costs.codec.images}"
    codec = costs.codec.model_copy(update={"sample_bytes": own, "level_bytes": fixed, "images": images})
    return costs.model_copy(update={"codec": codec})


def _show_forecast(load: Load, costs: Costs, as_json: bool, path: Path | None) -> None:
    on_the_way = growth(load, costs)
    found = on_the_way[-1]
    if as_json:
        print_json(
            {
                "load": load.model_dump(mode="json"),
                "costs": costs.model_dump(mode="json"),
                "machine": measured().machine.model_dump(mode="json"),
                "forecast": found.model_dump(mode="json"),
                "growth": [{"samples": f.raw_bytes // load.values} | f.model_dump() for f in on_the_way],
            }
        )
        return
    if path is not None:
        out.print(f"{path} grows from {load.start:,} samples.\n")
    for table in tables(load, costs, on_the_way):
        print_table(table.columns, table.rows, table.title)
        for note in table.notes:
            out.print(note)
        out.print()
    if found.task_samples != load.per_task:
        out.print(f"Too many tasks to look at each: they were taken to have {found.task_samples:,} samples.")
    machine = measured().machine
    out.print(
        f"Costs: {costs.codec.images}; one core of {machine.processor}, {machine.date}. What is assumed: "
        f"docs/scale.md"
    )


def _show_task(path: Path, incoming: int, as_json: bool) -> None:
    memory = Memory.open(path)
    change = memory.plan(incoming)
    trained = sum(slot.samples for slot in change.train)
    replayed = sum(slot.samples for slot in change.retire)
    if as_json:
        slots = {
            name: [slot._asdict() for slot in getattr(change, name)] for name in ("keep", "retire", "train")
        }
        print_json(
            {
                **slots,
                "buffer": len(change.buffer),
                "samples_trained": trained,
                "samples_replayed": replayed,
            }
        )
        return
    verbs = {"keep": "stays", "retire": "is replayed and retired", "train": "is trained"}
    rows = [
        [f"level {slot.level}", verb, f"{slot.start:,} to {slot.stop:,}", f"{slot.samples:,}"]
        for name, verb in verbs.items()
        for slot in getattr(change, name)
    ]
    buffered = change.buffer
    if buffered:
        rows.append(["buffer", "waits", f"{buffered.start:,} to {buffered.stop - 1:,}", f"{len(buffered):,}"])
    title = f"{path}: {memory.n:,} samples, {incoming:,} incoming"
    print_table(["", "what", "samples", "count"], rows, title)
    out.print(
        f"\n{trained:,} samples go through training, {replayed:,} of them replayed; "
        f"{len(change.keep)} level{'s' * (len(change.keep) != 1)} untouched."
    )
