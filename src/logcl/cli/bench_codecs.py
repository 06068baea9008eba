"""`logcl bench codecs`: bytes of codecs at equal quality. Unlike other benches, it runs no experiments."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from logcl.cli import console
from logcl.core.errors import BadSettings
from logcl.core.text import human_seconds

if TYPE_CHECKING:
    from logcl.core.settings import ImageShape
    from logcl.experiments.bench.image_sets import ImageSet
    from logcl.experiments.table import Table

_SMOKE_SETS = {"mnist", "cifar100", "clothing-64"}


def bench_codecs(
    scale: Literal["smoke", "small", "full"],
    options: Mapping[str, str | None],
    folder: Path,
    *,
    data_dir: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure codecs on image sets; `options` are --sets, --codecs, --source and --sides."""
    from logcl.experiments.bench import codec_rates, codecs
    from logcl.experiments.report import codecs as pages

    image_sets = _image_sets(scale, options)
    names = chosen(options["codecs"], [*codec_rates.our_codecs(), *codec_rates.LIBRARIES], "codec")
    cells = codecs.grid(image_sets, names, scale)
    missing = codec_rates.missing_libraries()
    missing = {name: why for name, why in missing.items() if names is None or name in names}
    for name, why in missing.items():
        console.err.print(f"logcl: {name} is left out: {why}")
    if not cells:
        raise BadSettings("none of these codecs can be measured on these images; choose others")
    given = [f"--{option} {shlex.quote(value)}" for option, value in options.items() if value]
    command = " ".join(["logcl bench codecs --scale", scale, *given])
    problems = []
    with (
        console.job(f"finished cells are in {folder}; resume with the same command", quiet=quiet) as progress,
        progress.track(f"codecs, {scale}", len(cells)) as advance,
    ):
        for event in codecs.run(cells, folder, scale, command=command, data_dir=data_dir, progress=progress):
            advance(event.cells)
            if event.state != "done":
                problems.append(event)
                console.err.print(f"logcl: {event.name} is {event.state}: {event.problem}")
            elif event.seconds is not None and not (console.err.is_terminal or quiet):
                console.err.print(f"{event.name}: {human_seconds(event.seconds)}")
    # Including what was measured with other --codecs: every codec is compared with all libraries.
    measured = pages.in_order(codecs.finished(codecs.grid(image_sets, None, scale), folder, scale).values())
    tables = pages.tables(measured) if measured else []
    if measured:
        readme, page, *_ = pages.write(pages.found_in(folder), folder)
    if as_json:
        document = {
            "tables": [{"title": table.title, "rows": table.records()} for table in tables],
            "cells": [cell.model_dump(mode="json") for cell in measured],
            "problems": [event._asdict() for event in problems],
            "missing": missing,
        }
        console.print_json(document)
    elif measured:
        print_tables(tables)
        console.out.print(f"\nresults      {folder} ({len(measured)} cells)")
        console.out.print(f"report       {readme}, {page}")
    if not measured or any(event.state == "failed" for event in problems):
        raise typer.Exit(1)


def _image_sets(scale: str, options: Mapping[str, str | None]) -> list[ImageSet]:
    """The sets to measure on: all known ones or those of --source, and of these the ones in --sets."""
    from logcl.experiments.bench.image_sets import IMAGE_SETS, from_source

    if options["source"] is not None:
        known = from_source(options["source"], _shapes(options["sides"]))
    elif options["sides"] is not None:
        raise BadSettings("--sides is for your own images; add --source")
    else:
        known = IMAGE_SETS
    everything = _SMOKE_SETS if scale == "smoke" and known is IMAGE_SETS else set(known)
    wanted = chosen(options["sets"], known, "image set") or everything
    return [known[name] for name in known if name in wanted]


def _shapes(sides: str | None) -> list[ImageShape]:
    """Of `--sides 64,1x28x28`; colour unless the number of channels is given."""
    parts = [part.strip() for part in sides.split(",")] if sides else []
    return [console.parse_shape(part).shape() for part in parts]


def chosen(text: str | None, known: Collection[str], what: str) -> set[str] | None:
    """The names in an option, which are separated by commas; None if it is not given."""
    if text is None:
        return None
    names = {part.strip() for part in text.split(",")}
    for name in sorted(names - set(known)):
        raise BadSettings(f"there is no {what} {name!r}; choose from: {', '.join(known)}")
    return names


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables with their titles and notes."""
    for table in tables:
        console.print_table(table.columns, table.rows, f"\n{table.title}")
        for note in table.notes:
            console.out.print(note)
