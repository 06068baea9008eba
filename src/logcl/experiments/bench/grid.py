"""A grid of experiments: one file a finished cell, nothing run twice, several processes at once.

A cell is taken by locking its file; the system releases the lock of a process that dies, so a killed grid
goes on where it was: whatever has no file yet is still to do, and a cell that was under way goes on after
its last finished task, out of a hidden folder beside its file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from pydantic import Field

from logcl.core.errors import Busy, CannotWrite, LogCLError
from logcl.core.files import write_atomically
from logcl.core.progress import Progress
from logcl.core.settings import Frozen
from logcl.core.writer_lock import writer_lock
from logcl.experiments import result
from logcl.experiments import run as experiment
from logcl.experiments.result import Result
from logcl.memory.presets import BUDGETS, USUAL_BUDGET, preset
from logcl.memory.settings import override
from logcl.nn.engines import Engine, Job, Local
from logcl.streams import CATALOG, Stream, open_stream

Scale = Literal["smoke", "small", "full"]
State = Literal["done", "running", "elsewhere", "failed", "waiting"]


class Thinning(Frozen):
    """Which part of a stream is used; see `Stream.thinned`."""

    per_class: int | None = None
    one_class_in: int = 1
    test_per_class: int | None = None


class Cell(Frozen):
    """One experiment of a grid, all that decides what it finds."""

    stream: str
    method: str
    seed: int = 0
    variant: str = ""
    """Tells cells of one method apart."""
    preset: str = "fast"
    budget: str | None = None
    """What a method with a buffer may keep; None is the preset's."""
    changes: dict[str, Any] = Field(default_factory=dict)
    """Settings that differ from the preset's, by dotted name."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Hyperparameters of the method's own."""
    evaluate: str = "final"
    tasks: int | None = None
    thinning: Thinning | None = None

    @property
    def name(self) -> str:
        """Names its file."""
        return "-".join(filter(None, (self.stream, self.method, self.variant, f"seed{self.seed}")))


@dataclass(frozen=True)
class Place:
    """Where a grid keeps its results: a flat folder, each file named after the scale and the cell."""

    folder: Path
    scale: Scale

    def path(self, cell: Cell) -> Path:
        """The file of a cell."""
        return self.folder / f"{self.scale}-{cell.name}.json"

    def workplace(self, cell: Cell) -> Path:
        """The folder that a cell runs in; it is gone when the cell is finished."""
        return self.folder / f".{self.scale}-{cell.name}"

    def finished(self, cells: Sequence[Cell]) -> dict[str, Result]:
        """Results of those cells that have one, by the cells' names."""
        return {cell.name: result.read(path) for cell in cells if (path := self.path(cell)).exists()}


@dataclass(frozen=True)
class Event:
    """Something that happened to a cell."""

    cell: Cell
    state: State
    result: Result | None = None
    problem: str = ""
    """Why it failed."""


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
    """Run what is not finished, in order, and tell what happens to each cell.

    A cell that another process is running is passed over. One that fails is told and left to do: the next
    grid tries it again.
    """
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(
            f"{place.folder} cannot be made ({error.strerror}); choose another --out"
        ) from error
    finished = place.finished(cells)
    for cell in cells:
        if cell.name in finished:
            happened(Event(cell, "done", finished[cell.name]))
    with ExitStack() as all_locks:
        taken: dict[str, tuple[Cell, ExitStack]] = {}

        def jobs() -> Iterator[Job[Result | LogCLError]]:
            """Cells that nobody else is running, each locked from when it is taken until it is done."""
            streams = _Streams(data_dir, progress)
            for cell in cells:
                if cell.name in finished:
                    continue
                lock = all_locks.enter_context(ExitStack())
                try:
                    lock.enter_context(writer_lock(place.path(cell)))
                    if place.path(cell).exists():  # finished just before the lock was free
                        lock.close()
                        happened(Event(cell, "done", result.read(place.path(cell))))
                        continue
                    stream = streams(cell)
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
    """One cell as a job. What LogCL refuses is its result, so that other cells go on.

    It works in `folder`, so that it can be taken up again; on a machine that has no such place, anywhere.
    """
    base = preset(cell.preset, stream.image_shape, cell.stream if cell.stream in CATALOG else None)
    with ExitStack() as anywhere:
        if not folder.parent.is_dir():
            folder = Path(anywhere.enter_context(TemporaryDirectory(prefix="logcl-"))) / "cell"
        try:
            return experiment.run(
                stream, cell.method, override(base, {**cell.changes, "seed": cell.seed}), folder,
                budget=cell.budget or BUDGETS.get(cell.preset, USUAL_BUDGET), options=cell.options,
                evaluate=cell.evaluate, earlier="continue or replace", command=command, progress=progress,
            )  # fmt: skip
        except LogCLError as error:
            return error


class _Streams:
    """Opens each stream once as long as consecutive cells share it."""

    def __init__(self, data_dir: Path | None, progress: Progress) -> None:
        self._data_dir, self._progress = data_dir, progress
        self._key: tuple[Any, ...] = ()
        self._stream: Stream | None = None

    def __call__(self, cell: Cell) -> Stream:
        key = (cell.stream, cell.tasks, cell.seed, cell.thinning)
        if key != self._key or self._stream is None:
            stream = open_stream(
                cell.stream,
                data_dir=self._data_dir,
                tasks=cell.tasks,
                seed=cell.seed,
                progress=self._progress,
            )
            if cell.thinning is not None:
                thin = cell.thinning
                stream = stream.thinned(
                    thin.per_class, one_class_in=thin.one_class_in, test_per_class=thin.test_per_class
                )
            self._stream, self._key = stream, key
        return self._stream


@dataclass(frozen=True)
class Estimate:
    """How long the rest of a grid takes, judged by cells that are finished."""

    seconds: dict[str, float]
    """Of finished cells, by name."""

    def of(self, cell: Cell, cells: Sequence[Cell]) -> float | None:
        """Like the same method on the same stream, else the same method anywhere, else any cell so far."""
        known = [other for other in cells if other.name in self.seconds]
        for alike in (
            [other for other in known if (other.stream, other.method) == (cell.stream, cell.method)],
            [other for other in known if other.method == cell.method],
            known,
        ):
            if alike:
                return float(np.mean([self.seconds[other.name] for other in alike]))
        return None

    def left(self, cells: Sequence[Cell], open_cells: Sequence[Cell]) -> float | None:
        """Seconds that the open cells take one after the other; None before the first is finished."""
        expected = [self.of(cell, cells) for cell in open_cells]
        return sum(seconds for seconds in expected if seconds is not None) if self.seconds else None
