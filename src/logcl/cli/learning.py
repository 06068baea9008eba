"""`logcl absorb`, `train` and `predict`: what changes a memory or uses its classifier."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from logcl.cli.console import (
    AddressOption,
    BitsOption,
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
from logcl.core.errors import BadInput, BadSettings, DataError, LogCLError
from logcl.core.progress import Progress
from logcl.core.settings import ImageShape
from logcl.core.text import human_bytes, printable
from logcl.integrations.logs import Callback, log_to
from logcl.memory.classifier import Classifier
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.memory import Memory
from logcl.memory.presets import preset as preset_settings
from logcl.memory.settings import override
from logcl.nn.engines import Engine
from logcl.streams import CATALOG, open_stream, read_npz, read_npz_images
from logcl.streams.archives import reading
from logcl.streams.folder import task_folders
from logcl.streams.images import list_all_images, read_folder, read_image


@dataclass(frozen=True)
class _Batch:
    """One task as it was found, before the memory has seen it."""

    name: str
    x: NDArray[np.uint8]
    labels: Any
    skipped: list[tuple[Path, str]]


@dataclass(frozen=True)
class _How:
    """Who trains, and who is told."""

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
    unit: Annotated[int | None, typer.Option(min=1, help="For a new memory: samples in a unit.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For a new memory.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images out.")] = False,
    from_task: Annotated[int, typer.Option(min=1, help="Skip the tasks of SOURCE before this one.")] = 1,
    data_dir: Annotated[Path | None, typer.Option(help="Where the official data files are.")] = None,
    bits: BitsOption = None,
    bytes_per_sample: BytesOption = None,
    psnr: PsnrOption = None,
    changes: SetOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    logs: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add labelled images to a memory, which is created if need be; afterwards they are no longer needed."""
    shape = parse_shape(image_shape) if image_shape else None
    dataset = source if source in CATALOG else None
    chosen: dict[str, Any] = {
        "preset": preset, "dataset": dataset, "unit": unit, "seed": seed,
        "settings": parse_changes(changes, bits, bytes_per_sample, psnr),
    }  # fmt: skip
    memory = None
    if MemoryFile(path).exists():
        memory = Memory.open(path, shape, **chosen)
        shape = memory.settings.image_shape
        with memory.file.writing():
            pass  # a second writer is refused now, not when it has read its images
    else:
        expected = preset_settings(preset or "fast", shape or (1, 28, 28), dataset)
        override(expected, chosen["settings"])  # refused early
    report: list[dict[str, Any]] = []

    def done() -> str:
        last = from_task + len(report) - 1
        return f"tasks up to {last} are in {path}; go on with --from-task {last + 1}" if report else ""

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
    """Create the memory for its first task; if that fails with nothing trained, there is none afterwards."""
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


def train(
    path: MemoryArgument,
    seed: Annotated[int | None, typer.Option(min=0, help="The memory's own by default.")] = None,
    changes: SetOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    logs: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retrain the global model from replay and keep it in the memory file."""
    memory = Memory.open(path)
    asked = parse_changes(changes)
    for name in asked:
        if not name.startswith("classifier."):
            raise BadSettings(
                f"--set {name} is fixed when a memory is created; only classifier settings change"
            )
    settings = override(memory.settings, asked).classifier
    callbacks = [log_to(place) for place in logs or ()]
    with (
        job(f"{path} still has the classifier it had") as progress,
        chosen_engine(engine, address) as runner,
    ):
        started = time.perf_counter()
        classifier = Classifier.train(
            memory, recipe=settings, seed=seed, engine=runner, callbacks=callbacks, progress=progress
        )
        seconds = time.perf_counter() - started
    about, last = classifier.about, classifier.last
    if as_json:
        went_on_from = last and last.samples
        print_json(
            {"classes": about.classes, "samples": about.samples, "from": went_on_from, "seconds": seconds}
        )
        return
    begun = f", going on from that of {last.samples:,} samples," if last else ""
    out.print(
        f"{path}: trained a classifier of {len(about.classes)} classes{begun} on {about.samples:,} "
        f"replayed samples in {seconds:.1f} s"
    )
    if settings.warm_start and last is None:
        err.print(f"note: it began afresh: {path} had no classifier of this kind and width to go on from")


def predict(
    path: MemoryArgument,
    images: Annotated[list[Path], typer.Argument(help="Image files, folders of images, .npz files with x.")],
    as_json: JsonOption = False,
) -> None:
    """Classify images with the global model."""
    memory = Memory.open(path)
    classifier = Classifier.load(memory)
    if not classifier.is_current(memory):
        err.print(
            f"note: {path} has grown from {classifier.about.samples:,} to {memory.n:,} samples since its "
            f"classifier was trained; `logcl train {path}` brings it up to date",
        )
    names: list[str] = []
    arrays: list[NDArray[np.uint8]] = []
    files = [file for image in images for file in (list_all_images(image) if image.is_dir() else [image])]
    with job("nothing was changed") as progress, progress.track("reading images", len(files)) as advance:
        for file in files:
            if file.suffix.lower() == ".npz":
                x = read_npz_images(file)
                names += [f"{file}[{row}]" for row in range(len(x))]
            else:
                x = read_image(file, classifier.image_shape)[None]
                names.append(str(file))
            arrays.append(x)
            advance()
    probabilities = np.concatenate([classifier.predict_proba(array) for array in arrays])
    rows = [
        {"image": name, "label": classifier.classes[int(row.argmax())], "probability": float(row.max())}
        for name, row in zip(names, probabilities, strict=True)
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        # rich would expand the tabs
        print(f"{printable(row['image'])}\t{printable(row['label'])}\t{row['probability']:.3f}")


def _read(
    source: str, shape: ImageShape | None, skip_bad: bool, data_dir: Path | None, progress: Progress
) -> Iterator[_Batch]:
    """The tasks of a source, one at a time."""
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
            shape = channels, height, width  # what suited the first task is the shape of them all
            yield _Batch(str(folder), found.x, found.y, found.skipped)
    elif is_file and place.suffix.lower() == ".npz":
        x, labels = read_npz(place)
        yield _Batch(source, x, labels, [])
    elif is_file:
        raise DataError(f"{source} is neither a folder of class-named folders nor an .npz file")
    else:
        raise DataError(f"{source} does not exist, and is none of the named data sets: {', '.join(CATALOG)}")


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
        "raw_bytes": memory.n * int(np.prod(memory.settings.image_shape)),
        "seconds": time.perf_counter() - started,
    }


def _sentence(path: Path, done: dict[str, Any]) -> str:
    levels = ", ".join(map(str, done["levels_trained"])) or "none"
    if done["levels_resumed"]:
        levels += f", of these before an interruption: {', '.join(map(str, done['levels_resumed']))}"
    return (
        f"{path}: absorbed {done['absorbed']:,} samples from {done['source']} in {done['seconds']:.1f} s "
        f"(levels trained: {levels}; {done['buffer']:,} in the buffer); holds {done['samples']:,} samples "
        f"in {human_bytes(done['memory_bytes'])}, raw {human_bytes(done['raw_bytes'])}"
    )
