"""`logcl absorb`: add labelled images to a memory."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logcl.cli.console import (
    AddressOption,
    BytesOption,
    EngineOption,
    JsonOption,
    LogOption,
    MemoryArgument,
    PsnrOption,
    SetOption,
    chosen_engine,
    err,
    job,
    out,
    parse_changes,
    parse_shape,
    print_json,
)
from logcl.core.errors import BadInput, DataError, LogCLError
from logcl.core.text import human_bytes, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from logcl.core.progress import Callback, Progress
    from logcl.core.settings import ImageShape
    from logcl.memory.memory import Memory
    from logcl.nn.engines import Engine


@dataclass(frozen=True)
class _Batch:
    """One task as read from the source."""

    name: str
    x: NDArray[np.uint8]
    labels: Any
    skipped: list[tuple[Path, str]]


@dataclass(frozen=True)
class _How:
    """Where to train, and what to report to."""

    engine: Engine
    callbacks: Sequence[Callback]
    progress: Progress


def absorb(
    path: MemoryArgument,
    source: Annotated[
        str,
        typer.Argument(help="A folder of class-named folders of images, an .npz file or a named data set."),
    ],
    image_shape: Annotated[
        str | None, typer.Option(metavar="CxHxW", help="Shape of a new memory's images, e.g. 3x32x32.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="For a new memory: fast (default), paper-cpu, paper.")
    ] = None,
    unit: Annotated[int | None, typer.Option(min=1, help="For a new memory: samples per unit.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For a new memory: random seed.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip unreadable images.")] = False,
    from_task: Annotated[int, typer.Option(min=1, help="Skip the tasks of SOURCE before this one.")] = 1,
    data_dir: Annotated[Path | None, typer.Option(help="Where the official data files are.")] = None,
    bytes_per_sample: BytesOption = None,
    psnr: PsnrOption = None,
    changes: SetOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    logs: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add labelled images to a memory, created if absent; the files are not needed afterwards."""
    from logcl.integrations.logs import log_to
    from logcl.memory.file.memory_file import MemoryFile
    from logcl.memory.memory import Memory
    from logcl.memory.presets import preset as preset_settings
    from logcl.memory.settings import override
    from logcl.streams.catalog import CATALOG

    shape = parse_shape(image_shape) if image_shape else None
    dataset = source if source in CATALOG else None
    chosen: dict[str, Any] = {
        "preset": preset, "dataset": dataset, "unit": unit, "seed": seed,
        "settings": parse_changes(changes, bytes_per_sample, psnr),
    }  # fmt: skip
    memory = None
    if MemoryFile(path).exists():
        memory = Memory.open(path, shape, **chosen)
        shape = memory.settings.image_shape
        with memory.file.writing():
            pass  # refuse a second writer before reading any images
    else:
        expected = preset_settings(preset or "fast", shape or (1, 28, 28), dataset)
        override(expected, chosen["settings"])  # refused early
    report: list[dict[str, Any]] = []

    def done() -> str:
        last = from_task + len(report) - 1
        return f"tasks up to {last} are in {path}; continue with --from-task {last + 1}" if report else ""

    with (
        job(lambda: done() or f"{path} holds what it held before this task") as progress,
        chosen_engine(engine, address) as runner,
    ):
        how = _How(runner, [log_to(place) for place in logs or ()], progress)
        try:
            for number, batch in enumerate(_read(source, shape, skip_bad, data_dir, progress), start=1):
                if number < from_task:
                    continue
                for bad, reason in batch.skipped:
                    err.print(printable(f"skipped {bad}: {reason}"))
                if memory is None:
                    memory = _first_task(path, batch, chosen, report, how)
                else:
                    report.append(_absorb_one(memory, batch, how))
                if not as_json:
                    out.print(_sentence(path, report[-1]))
        except LogCLError as error:
            if report:
                raise type(error)(f"{str(error).rstrip('.')}; {done()}") from error
            raise
    if not report:
        raise BadInput(f"{source} has no task {from_task}; nothing was absorbed")
    if as_json:
        print_json({"memory": str(path), "tasks": report, "samples": report[-1]["samples"]})


def _first_task(
    path: Path, batch: _Batch, chosen: dict[str, Any], report: list[dict[str, Any]], how: _How
) -> Memory:
    """Create the memory for its first task; remove it again if that fails with nothing trained."""
    from logcl.memory.memory import Memory

    channels, height, width = batch.x.shape[1:]
    memory = Memory.open(path, (channels, height, width), **chosen)
    err.print(
        f"new memory {path} for images {channels}x{height}x{width} (channels x height x width); "
        "image files of other sizes are resized; --image-shape chooses another"
    )
    try:
        report.append(_absorb_one(memory, batch, how))
    except BaseException:
        if not memory.n and not memory.file.staged():
            memory.path.unlink()
        raise
    return memory


def _read(
    source: str, shape: ImageShape | None, skip_bad: bool, data_dir: Path | None, progress: Progress
) -> Iterator[_Batch]:
    """Yield the tasks of a source, one at a time."""
    import numpy as np

    from logcl.streams import CATALOG, open_stream, read_npz
    from logcl.streams.archives import reading
    from logcl.streams.folder import task_folders
    from logcl.streams.images import read_folder

    place = Path(source)
    with reading(place, "check the path and its permissions"):
        is_folder, is_file = place.is_dir(), place.is_file()
    if source in CATALOG:
        stream = open_stream(source, data_dir=data_dir, progress=progress)
        for number, task in enumerate(stream, start=1):
            names = np.array(stream.classes)[task.y]
            yield _Batch(f"{source}, task {number} of {len(stream)}", task.x, names, [])
    elif is_folder:
        for folder in task_folders(place):
            found = read_folder(folder, shape, skip_bad=skip_bad, progress=progress)
            channels, height, width = found.x.shape[1:]
            shape = channels, height, width  # the first task decides for all
            yield _Batch(str(folder), found.x, found.y, found.skipped)
    elif is_file and place.suffix.lower() == ".npz":
        x, labels = read_npz(place)
        yield _Batch(source, x, labels, [])
    elif is_file:
        raise DataError(
            f"{source} is neither a folder of class-named folders nor an .npz file; give one of these"
        )
    else:
        raise DataError(
            f"{source} does not exist and is none of the named data sets; these are: {', '.join(CATALOG)}"
        )


def _absorb_one(memory: Memory, batch: _Batch, how: _How) -> dict[str, Any]:
    started = time.perf_counter()
    done = memory.absorb(
        batch.x, batch.labels, engine=how.engine, callbacks=how.callbacks, progress=how.progress
    )
    return {
        "source": batch.name,
        "absorbed": len(batch.x),
        "skipped": [{"file": str(path), "reason": reason} for path, reason in batch.skipped],
        "samples": memory.n,
        "levels_trained": [slot.level for slot in done.plan.train],
        "levels_resumed": [slot.level for slot in done.resumed],
        "samples_trained": sum(slot.samples for slot in done.plan.train),
        "levels_kept": [slot.level for slot in done.plan.keep],
        "buffer": len(done.plan.buffer),
        "memory_bytes": memory.nbytes(),
        "raw_bytes": memory.n * math.prod(memory.settings.image_shape),
        "seconds": time.perf_counter() - started,
    }


def _sentence(path: Path, done: dict[str, Any]) -> str:
    levels = ", ".join(map(str, done["levels_trained"])) or "none"
    if done["levels_resumed"]:
        levels += f", resumed: {', '.join(map(str, done['levels_resumed']))}"
    return (
        f"{path}: absorbed {done['absorbed']:,} samples from {done['source']} in {done['seconds']:.1f} s "
        f"(levels trained: {levels}; {done['buffer']:,} in the buffer); holds {done['samples']:,} samples "
        f"in {human_bytes(done['memory_bytes'])}, raw {human_bytes(done['raw_bytes'])}"
    )
