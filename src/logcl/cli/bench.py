"""`logcl bench`: the paper's tables and figures from one command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from logcl.cli import console
from logcl.core.errors import BadSettings
from logcl.core.text import human_bytes, human_seconds

if TYPE_CHECKING:
    from logcl.core.settings import ImageShape
    from logcl.experiments.bench.grid import Cell, Event
    from logcl.experiments.result import Result
    from logcl.experiments.table import Table


CODECS = "codecs"
"""The bench that runs no experiments."""
_SMOKE_SETS = ("mnist", "cifar100", "clothing-64")


def bench(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="table1, table2, extreme, bytes, growth or codecs.")
    ],
    scale: Annotated[
        Literal["smoke", "small", "full"],
        typer.Option(help="smoke: a quick test; small: a quarter of an hour; full: the size in the paper."),
    ] = "small",
    methods: Annotated[str | None, typer.Option(help="Only these methods, separated by commas.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds, counting up from 0.")] = None,
    streams: Annotated[str | None, typer.Option(help="Only these streams, separated by commas.")] = None,
    sets: Annotated[
        str | None, typer.Option(help="codecs: only these image sets, separated by commas.")
    ] = None,
    codecs: Annotated[
        str | None, typer.Option(help="codecs: only these codecs, separated by commas.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="codecs: your own images, a folder of class-named folders or an .npz file."),
    ] = None,
    sides: Annotated[
        str | None,
        typer.Option(help="codecs: sizes for --source, separated by commas, e.g. 64,128 or 1x28x28."),
    ] = None,
    out_dir: Annotated[
        Path, typer.Option("--out", help="Folder for the results, one sub-folder per bench.")
    ] = Path("results"),
    data_dir: console.DataDirOption = None,
    engine: console.EngineOption = "local",
    address: console.AddressOption = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Run a grid of experiments, or measure codecs, and show the tables.

    Finished experiments are kept and not repeated: the same command resumes an interrupted grid, and several
    processes may share one.
    """
    experiment_options = {"methods": methods, "seeds": seeds, "streams": streams, "address": address}
    codec_options = {"sets": sets, "codecs": codecs, "source": source, "sides": sides}
    for option, value in (experiment_options if name == CODECS else codec_options).items():
        if value is not None:
            raise BadSettings(f"--{option} is not an option of the bench {name}; leave it out")
    if name == CODECS:
        if engine != "local":
            raise BadSettings("codecs are measured one after the other in this machine; leave out --engine")
        _codecs(scale, sets, codecs, source, sides, out_dir / name, data_dir, quiet, as_json)
        return
    from logcl.experiments.bench import grid
    from logcl.experiments.bench.benches import BENCHES
    from logcl.experiments.bench.tables import TABLES
    from logcl.methods import METHODS

    if name not in BENCHES:
        raise BadSettings(f"there is no bench {name!r}; choose one of: {', '.join([*BENCHES, CODECS])}")
    cells = BENCHES[name].grid(scale, seeds, _chosen(methods, METHODS, "method"))
    if streams is not None:
        wanted = _chosen(streams, {cell.stream for cell in cells}, "stream of this bench")
        cells = [cell for cell in cells if wanted and cell.stream in wanted]
    if not cells:
        of_bench = dict.fromkeys(cell.method for cell in BENCHES[name].grid(scale, 1))
        raise BadSettings(f"{name} has none of these methods; choose from: {', '.join(of_bench)}")
    place = grid.Place(out_dir / name, scale)
    view = _View(cells, f"{name}, {scale}")
    safe = f"finished runs are kept in {place.folder}; resume with the same command"
    with (
        console.job(safe, view.show, quiet=quiet) as progress,
        progress.track(f"{name}, {scale}", len(cells)) as advance,
        console.chosen_engine(engine, address) as runner,
    ):
        view.at_once, view.advance = runner.workers, advance
        grid.run(
            cells, place, command=f"logcl bench {name} --scale {scale}", happened=view.happened,
            data_dir=data_dir, engine=runner, progress=progress,
        )  # fmt: skip
    finished = list(place.finished(cells).values())
    tables = TABLES[name](finished) if finished else []
    if as_json:
        console.print_json({"tables": [{"title": t.title, "rows": t.records()} for t in tables]})
    else:
        _print_tables(tables)
        console.out.print(f"\nresults      {place.folder} ({len(finished)} of {len(cells)} cells)")
        if finished:
            from logcl.experiments.report import benches  # matplotlib is slow to import

            (page,) = benches.write(name, {scale: finished}, place.folder / f"{scale}-report.html")
            console.out.print(f"report       {page}")
    events = view.events.values()
    if elsewhere := sum(event.state == "elsewhere" for event in events):
        console.err.print(f"logcl: {elsewhere} cells are running in other processes")
    if failed := [event for event in events if event.state == "failed"]:
        for event in failed:
            console.err.print(f"logcl: {event.cell.name} failed: {event.problem}")
        raise typer.Exit(1)


def _codecs(
    scale: Literal["smoke", "small", "full"],
    sets: str | None,
    chosen: str | None,
    source: str | None,
    sides: str | None,
    folder: Path,
    data_dir: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure codecs on image sets and show what they take at equal PSNR."""
    from logcl.experiments.bench import codecs
    from logcl.experiments.bench.image_sets import IMAGE_SETS, from_source
    from logcl.experiments.report import codecs as pages

    if sides is not None and source is None:
        raise BadSettings("--sides is for your own images; add --source")
    known = IMAGE_SETS if source is None else from_source(source, _shapes(sides))
    wanted = _chosen(sets, known, "image set")
    if wanted is None and source is None and scale == "smoke":
        wanted = set(_SMOKE_SETS)
    image_sets = [known[name] for name in known if wanted is None or name in wanted]
    names = _chosen(chosen, [*codecs.our_codecs(), *codecs.LIBRARIES], "codec")
    cells = codecs.grid(image_sets, names, scale)
    if not cells:
        raise BadSettings("none of these codecs can be measured on these images; choose others")
    given = {"sets": sets, "codecs": chosen, "source": source, "sides": sides}
    options = "".join(f" --{option} {shlex.quote(value)}" for option, value in given.items() if value)
    missing = {
        name: why for name, why in codecs.missing_libraries().items() if names is None or name in names
    }
    problems = []
    with (
        console.job(
            f"finished cells are kept in {folder}; resume with the same command", quiet=quiet
        ) as progress,
        progress.track(f"codecs, {scale}", len(cells)) as advance,
    ):
        command = f"logcl bench codecs --scale {scale}{options}"
        for event in codecs.run(cells, folder, scale, command=command, data_dir=data_dir, progress=progress):
            advance(event.cells)
            if event.state != "done":
                problems.append(event)
            elif event.seconds is not None and not console.err.is_terminal and not quiet:
                console.err.print(f"{event.name}: {human_seconds(event.seconds)}")
    found = codecs.finished(codecs.grid(image_sets, None, scale), folder, scale)
    measured = pages.in_order(found.values())
    for event in problems:
        console.err.print(
            f"logcl: {event.name}: {event.state}" + (f", {event.problem}" if event.problem else "")
        )
    for name, why in missing.items():
        console.err.print(f"logcl: {name} is left out: {why}")
    if not measured:
        raise typer.Exit(1)
    files = pages.write(pages.found_in(folder), folder)
    tables = pages.tables(measured)
    if as_json:
        shown = [{"title": table.title, "rows": table.records()} for table in tables]
        problem = [event._asdict() for event in problems]
        cells_shown = [cell.model_dump(mode="json") for cell in measured]
        console.print_json({"tables": shown, "cells": cells_shown, "problems": problem, "missing": missing})
    else:
        _print_tables(tables)
        console.out.print(f"\nresults      {folder} ({len(found)} cells)")
        console.out.print(f"report       {files[0]}, {files[1]}")
    if any(event.state == "failed" for event in problems):
        raise typer.Exit(1)


def _shapes(text: str | None) -> list[ImageShape]:
    """`--sides 64,1x28x28`: colour unless the channels are given."""
    parts = [part.strip() for part in text.split(",")] if text else []
    return [console.parse_shape(part if "x" in part else f"3x{part}x{part}") for part in parts]


def _print_tables(tables: Sequence[Table]) -> None:
    for table in tables:
        console.print_table(table.columns, table.rows, f"\n{table.title}")
        for note in table.notes:
            console.out.print(note)


def _chosen(text: str | None, known: Collection[str], what: str) -> set[str] | None:
    if text is None:
        return None
    names = {part.strip() for part in text.split(",")}
    for name in sorted(names - set(known)):
        raise BadSettings(f"there is no {what} {name!r}; choose from: {', '.join(known)}")
    return names


class _View:
    """The state of the grid, one row per stream and method, and the time it will take."""

    def __init__(self, cells: Sequence[Cell], title: str) -> None:
        self.cells, self.title = cells, title
        self.events: dict[str, Event] = {}
        self.at_once = 1
        self.advance: Callable[[], None] = lambda: None

    def happened(self, event: Event) -> None:
        """Store an event and advance the progress bar; not on a terminal, also print the event."""
        if event.state != "running":
            self.advance()
        known = self.events.get(event.cell.name)
        self.events[event.cell.name] = event
        if not console.err.is_terminal and event.state != "running" and known is not None:
            done = sum(event.state == "done" for event in self.events.values())
            found = event.problem if event.result is None else _found([event.result])
            name = f"{done}/{len(self.cells)}  {event.cell.name}"
            console.err.print(f"{name}: {event.state}  {found}  {self._end()}")

    def show(self) -> RenderableType:
        """The table above the progress bars."""
        table = console.new_table(self.title)
        for column in ("stream", "method", "done", "accuracy, bytes, time", ""):
            table.add_column(column, no_wrap=True)
        for key in dict.fromkeys((cell.stream, cell.method) for cell in self.cells):
            mine = [cell for cell in self.cells if (cell.stream, cell.method) == key]
            events = [self.events[cell.name] for cell in mine if cell.name in self.events]
            results = [event.result for event in events if event.result is not None]
            states = [event.state for event in events if event.state != "done"]
            done = f"{len(results)}/{len(mine)}"
            table.add_row(*key, done, _found(results), ", ".join(sorted(set(states))))
        return Group(table, Text(self._end(), style="dim"))

    def _end(self) -> str:
        from logcl.experiments.bench import grid

        results = {name: event.result for name, event in self.events.items() if event.result is not None}
        seconds = {name: sum(result.seconds.values()) for name, result in results.items()}
        closed = {name for name, event in self.events.items() if event.state != "running"}
        open_cells = [cell for cell in self.cells if cell.name not in closed]
        left = grid.seconds_left(seconds, self.cells, open_cells)
        if left is None or not open_cells:
            return ""
        left /= min(self.at_once, len(open_cells))
        end = datetime.now() + timedelta(seconds=left)
        return f"about {human_seconds(left)} left, until {end:%H:%M}, estimated from finished cells"


def _found(results: Sequence[Result]) -> str:
    if not results:
        return ""
    accuracy = fmean(result.final_accuracy for result in results)
    kept = fmean(result.memory_bytes for result in results)
    seconds = fmean(sum(result.seconds.values()) for result in results)
    return f"{accuracy:.1%}, {human_bytes(kept)}, {human_seconds(seconds)}"
