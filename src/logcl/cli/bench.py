"""`logcl bench`: the paper's tables and figures from one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from logcl.cli import console
from logcl.cli.bench_codecs import bench_codecs, chosen, print_tables
from logcl.core.errors import BadSettings
from logcl.core.text import human_bytes, human_seconds

if TYPE_CHECKING:
    from logcl.experiments.bench.grid import Cell, Event
    from logcl.experiments.result import Result


CODECS = "codecs"
"""The bench that runs no experiments."""


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
    for_codecs = {"sets": sets, "codecs": codecs, "source": source, "sides": sides}
    for_runs = {"methods": methods, "seeds": seeds, "streams": streams, "address": address}
    if engine != "local":
        for_runs["engine"] = engine
    for option, value in (for_runs if name == CODECS else for_codecs).items():
        if value is not None:
            raise BadSettings(f"--{option} is not an option of the bench {name}; leave it out")
    if name == CODECS:
        bench_codecs(scale, for_codecs, out_dir / name, data_dir=data_dir, quiet=quiet, as_json=as_json)
        return
    from logcl.experiments.bench import grid
    from logcl.experiments.bench.benches import BENCHES
    from logcl.experiments.bench.tables import TABLES
    from logcl.methods import METHODS

    if name not in BENCHES:
        raise BadSettings(f"there is no bench {name!r}; choose one of: {', '.join([*BENCHES, CODECS])}")
    cells = BENCHES[name].grid(scale, seeds, chosen(methods, METHODS, "method"))
    if streams is not None:
        wanted = chosen(streams, {cell.stream for cell in cells}, "stream of this bench")
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
        print_tables(tables)
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


class _View:
    """The state of the grid, one row per stream and method, and the time it will take."""

    def __init__(self, cells: Sequence[Cell], title: str) -> None:
        self.cells, self.title = cells, title
        self.events: dict[str, Event] = {}
        self.at_once = 1
        self.advance: Callable[[], None] = lambda: None

    def happened(self, event: Event) -> None:
        """Store an event, advance the progress bar and, without a terminal, print the event."""
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
