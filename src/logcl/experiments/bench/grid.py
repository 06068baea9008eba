"""A grid of experiments: one file per finished cell, nothing run twice, several processes at once.

A process takes a cell by locking its file, and the system releases the locks of a process that dies. So a
killed grid resumes where it stopped: cells without a file are still to do, and a cell that was running
resumes after its last finished task, from a hidden folder beside its file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from logcl.core.errors import Busy, LogCLError
from logcl.core.files import write_atomically
from logcl.core.progress import Progress
from logcl.core.settings import Frozen
from logcl.core.writer_lock import writer_lock
from logcl.experiments import result
from logcl.experiments import run as experiment
from logcl.experiments.result import Result, make_folder
from logcl.memory.presets import BUDGETS, USUAL_BUDGET, preset
from logcl.memory.settings import applicable, override
from logcl.nn.engines import Engine, Job, Local
from logcl.streams import CATALOG, Stream, open_stream

Scale = Literal["smoke", "small", "full"]
State = Literal["done", "running", "elsewhere", "failed"]


class Thinning(Frozen):
    """Which part of a stream to use: the arguments of `Stream.thinned`."""

    per_class: int | None = None
    one_class_in: int = 1
    test_per_class: int | None = None


class Cell(Frozen):
    """One experiment of a grid: everything that determines its result."""

    stream: str
    method: str
    seed: int = 0
    variant: str = ""
    """Distinguishes cells of the same method."""
    preset: str = "fast"
    budget: str | None = None
    """The most that a method with a buffer may keep; None for the preset's budget."""
    changes: dict[str, Any] = Field(default_factory=dict)
    """Settings that differ from the preset, by dotted name."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The method's own hyperparameters."""
    evaluate: str = "final"
    tasks: int | None = None
    thinning: Thinning | None = None

    @property
    def name(self) -> str:
        """The name of its file."""
        return "-".join(filter(None, (self.stream, self.method, self.variant, f"seed{self.seed}")))

    def but(self, **changes: Any) -> Cell:
        """The same cell with some fields changed."""
        return self.model_copy(update=changes)


class Place(NamedTuple):
    """Where a grid keeps its results: one folder, with files named after the scale and the cell."""

    folder: Path
    scale: Scale

    def path(self, cell: Cell) -> Path:
        """The result file of a cell."""
        return self.folder / f"{self.scale}-{cell.name}.json"

    def workplace(self, cell: Cell) -> Path:
        """The folder that a cell runs in; removed when the cell is finished."""
        return self.folder / f".{self.scale}-{cell.name}"

    def finished(self, cells: Sequence[Cell]) -> dict[str, Result]:
        """Results of the finished cells, by cell name."""
        return {cell.name: result.read(path) for cell in cells if (path := self.path(cell)).exists()}


class Event(NamedTuple):
    """A change in the state of a cell."""

    cell: Cell
    state: State
    result: Result | None = None
    problem: str = ""
    """Error message of a cell that failed."""


def run(
    cells: Sequence[Cell],
    place: Place,
    *,
    command: str,
    happened: Callable[[Event], None],
    data_dir: Path | None = None,
    engine: Engine | None = None,
    progress: Progress,
) -> None:
    """Run the cells that are not finished, in order; `happened` is called with every change of state.

    Cells that another process is running are skipped. A cell that fails is reported, and run again next time.
    """
    make_folder(place.folder)
    finished = place.finished(cells)
    for cell in cells:
        if cell.name in finished:
            happened(Event(cell, "done", finished[cell.name]))

    @lru_cache(maxsize=1)  # consecutive cells often share a stream
    def opened(source: str, tasks: int | None, seed: int, thinning: Thinning | None) -> Stream:
        stream = open_stream(
            CATALOG.get(source, source), data_dir=data_dir, tasks=tasks, seed=seed, progress=progress
        )
        return stream.thinned(**thinning.model_dump()) if thinning else stream

    with ExitStack() as all_locks:
        taken: dict[str, tuple[Cell, ExitStack]] = {}

        def jobs() -> Iterator[Job[Result | LogCLError]]:
            """Cells that no other process is running, each locked until it is done."""
            for cell in cells:
                if cell.name in finished:
                    continue
                lock = all_locks.enter_context(ExitStack())
                path = place.path(cell)
                try:
                    lock.enter_context(writer_lock(path))
                    if path.exists():  # another process has just finished it
                        lock.close()
                        happened(Event(cell, "done", result.read(path)))
                        continue
                    stream = opened(cell.stream, cell.tasks, cell.seed, cell.thinning)
                except Busy:
                    happened(Event(cell, "elsewhere"))
                    continue
                except LogCLError as error:
                    lock.close()
                    happened(Event(cell, "failed", problem=str(error)))
                    continue
                taken[cell.name] = cell, lock
                happened(Event(cell, "running"))
                yield Job(cell.name, _run_cell, (cell, stream, place.workplace(cell).resolve(), command))

        for job, found in (engine or Local()).run(jobs(), progress):
            cell, lock = taken.pop(job.name)
            with lock:
                if isinstance(found, LogCLError):
                    happened(Event(cell, "failed", problem=str(found)))
                    continue
                write_atomically(place.path(cell), found.model_dump_json().encode() + b"\n")
                shutil.rmtree(place.workplace(cell), ignore_errors=True)
                happened(Event(cell, "done", found))


def _run_cell(
    cell: Cell, stream: Stream, folder: Path, command: str, progress: Progress
) -> Result | LogCLError:
    """Run one cell as a job; returns errors of LogCL, so that other cells continue.

    Runs in `folder`, so that it can be resumed; in a temporary folder on a machine that does not have it.
    """
    base = preset(cell.preset, stream.image_shape, cell.stream if cell.stream in CATALOG else None)
    with ExitStack() as stack:
        if not folder.parent.is_dir():
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="logcl-"))) / "cell"
        try:
            settings = override(base, {**applicable(base, cell.changes), "seed": cell.seed})
            return experiment.run(
                stream, cell.method, settings, folder,
                budget=cell.budget or BUDGETS.get(cell.preset, USUAL_BUDGET), options=cell.options,
                evaluate=cell.evaluate, earlier="continue or replace", command=command, progress=progress,
            )  # fmt: skip
        except LogCLError as error:
            return error


def seconds_left(
    seconds: Mapping[str, float], cells: Sequence[Cell], open_cells: Sequence[Cell]
) -> float | None:
    """Estimate of how long the open cells take one after the other; None before any cell is finished.

    `seconds` are those of finished cells, by name. Estimated from the same method on the same stream, else
    from the same method, else from all finished cells.
    """
    finished = [cell for cell in cells if cell.name in seconds]
    if not finished:
        return None
    total = 0.0
    for cell in open_cells:
        same_method = [other for other in finished if other.method == cell.method]
        same_stream = [other for other in same_method if other.stream == cell.stream]
        alike = same_stream or same_method or finished
        total += float(np.mean([seconds[other.name] for other in alike]))
    return total
