"""`logcl absorb`: add labelled images to a memory."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from logcl.cli import console
from logcl.core.errors import BadInput, LogCLError
from logcl.core.sizes import ImageSize, parse_size, shape_text
from logcl.core.text import human_bytes

if TYPE_CHECKING:
    from logcl.core.settings import ImageShape
    from logcl.memory.memory import Absorbed, Memory
    from logcl.memory.settings import Settings
    from logcl.nn.backbones import Backbone
    from logcl.streams import Task


def absorb(
    path: console.MemoryArgument,
    source: console.SourceArgument,
    image_shape: console.ShapeOption = None,
    fit: console.FitOption = None,
    backbone: console.BackboneOption = None,
    thumbnails: console.ThumbnailsOption = 0,
    preset: Annotated[
        str | None, typer.Option(help="For a new memory: fast (default), paper-cpu, paper.")
    ] = None,
    unit: Annotated[int | None, typer.Option(min=1, help="For a new memory: samples per unit.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For a new memory: random seed.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out unreadable images.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Absorb images even if an earlier task had them.")
    ] = False,
    from_task: Annotated[int, typer.Option(min=1, help="Number of the first task of SOURCE to absorb.")] = 1,
    data_dir: console.DataDirOption = None,
    bytes_per_sample: console.BytesOption = None,
    psnr: console.PsnrOption = None,
    codec: console.CodecOption = None,
    changes: console.SetOption = None,
    engine: console.EngineOption = "local",
    address: console.AddressOption = None,
    logs: console.LogOption = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Add labelled images to a memory, created if absent; the files are not needed afterwards."""
    from logcl.integrations.logs import log_to
    from logcl.memory.beginning import begin, codec_text
    from logcl.memory.featured import samples_of
    from logcl.memory.file.memory_file import MemoryFile
    from logcl.memory.memory import Memory
    from logcl.nn import backbones
    from logcl.streams import Named, check_size, read_tasks, resolve, survey_of

    size = console.parse_shape(image_shape) if image_shape is not None else None
    found = resolve(source)
    dataset = found.name if isinstance(found, Named) else None
    network = None if backbone is None else backbones.named(backbone, size and size.shape())
    chosen: dict[str, Any] = {
        "backbone": network, "thumbnails": thumbnails, "preset": preset, "dataset": dataset, "unit": unit,
        "seed": seed, "settings": console.parse_changes(changes, bytes_per_sample, psnr, codec, fit),
    }  # fmt: skip
    memory: Memory | None = None
    if MemoryFile(path).exists():
        memory = Memory.open(path, size, **chosen)
        network, thumbnails = memory.backbone, memory.settings.thumbnails
        size, way = parse_size(memory.settings.input_shape), memory.settings.fit
        with memory.file.writing():
            pass  # refuse a second writer before reading any images
    else:
        way = _check_settings(size, **chosen).fit  # before reading any images
        size = size if network is None else parse_size(network.spec.image_shape)
    tell = not (quiet or as_json)
    report: list[dict[str, Any]] = []
    latest: tuple[int, Task, int] | None = None  # its number, the task, tasks in the memory before it

    def state() -> str:
        """What the file holds now: it may have been committed although `absorb` never returned."""
        if memory is None or not memory.file.exists():
            return f"no memory was created at {path}"
        if latest is not None:
            number, task, before = latest
            if (task.source, len(task)) in [(e.source, e.samples) for e in memory.ledger[before:]]:
                return f"tasks up to {number} are in {path}; continue with --from-task {number + 1}"
            if number > from_task:
                return f"tasks up to {number - 1} are in {path}; continue with --from-task {number}"
        return f"{path} is as it was before this task"

    with console.job(state, quiet=quiet) as progress, console.chosen_engine(engine, address) as runner:
        callbacks = [log_to(place) for place in logs or ()]
        try:
            survey = None
            if memory is None:
                survey = survey_of(found, from_task, skip_bad=skip_bad, progress=progress)
            if survey:
                if tell:
                    by = "as asked" if network is None else f"as {network.spec.name} takes it"
                    console.show_survey(f"new memory {path}", survey, size, way, by)
                size = parse_size(survey.image_shape(size))
            tasks = read_tasks(
                found, size, fit=way, first=from_task, data_dir=data_dir, skip_bad=skip_bad,
                through=None if network is None else partial(samples_of, network, thumbnails),
                progress=progress,
            )  # fmt: skip
            for number, task in enumerate(tasks, from_task):
                for bad, reason in task.skipped:
                    console.err.print(f"skipped {bad}: {reason}")
                if memory is None:
                    shape = task.x.shape[1:]
                    if size is not None and network is None:
                        check_size(size, shape, task.source)
                    memory = begin(path, _new_settings(shape, **chosen), task.x, task.y, progress)
                    memory.given = network
                    if tell and not survey:
                        console.err.print(f"new memory {path} for images {shape_text(shape)}, as in {source}")
                    if tell:
                        console.err.print(codec_text(memory.manifest))
                        if (choice := memory.manifest.choice) is not None and choice.mirror is not None:
                            console.err.print(str(choice.mirror))
                started = time.perf_counter()
                latest = number, task, len(memory.ledger)
                done = memory.absorb(
                    task.x, task.y, source=task.source, again=again, engine=runner, callbacks=callbacks,
                    progress=progress,
                )  # fmt: skip
                report.append(_describe(memory, task, done, time.perf_counter() - started))
                if not as_json:
                    console.out.print(f"{path}: {_sentence(report[-1])}")
        except LogCLError as error:
            if report:
                raise type(error)(f"{error}; {state()}") from error
            raise
        if not report:
            raise BadInput(f"{source} has no task {from_task}; give a smaller --from-task")
        if as_json:
            console.print_json({"memory": str(path), "tasks": report, "samples": report[-1]["samples"]})


def _check_settings(size: ImageSize | None, **chosen: Any) -> Settings:
    """Refuse settings that are invalid; if the shape is unknown, those invalid for tiny and larger images."""
    guesses = [size.shape(1), size.shape(3)] if size else [(1, 8, 8), (3, 64, 64)]
    try:
        return _new_settings(guesses[0], **chosen)
    except LogCLError:
        return _new_settings(guesses[1], **chosen)


def _new_settings(
    shape: tuple[int, ...],
    backbone: Backbone | None,
    thumbnails: int,
    preset: str | None,
    dataset: str | None,
    unit: int | None,
    seed: int | None,
    settings: Mapping[str, Any],
) -> Settings:
    """The settings of a new memory, as in `Memory.open`."""
    from logcl.memory.presets import preset as preset_settings
    from logcl.memory.settings import override

    given = {name: value for name, value in (("seed", seed), ("unit", unit)) if value is not None}
    spec = None if backbone is None else backbone.spec
    start = preset_settings(preset or "fast", cast("ImageShape", shape), dataset, spec, thumbnails)
    return override(start, {**settings, **given})


def _describe(memory: Memory, task: Task, done: Absorbed, seconds: float) -> dict[str, Any]:
    """What is printed about a task. This must not fail: the task is committed."""
    try:
        sizes: Mapping[str, int | None] = memory.file.usage().named()
    except LogCLError:
        sizes = dict.fromkeys(("memory_bytes", "classifier_bytes", "file_bytes"))
    return {
        "source": task.source,
        "absorbed": len(task),
        "skipped": [{"file": str(path), "reason": reason} for path, reason in task.skipped],
        "samples": done.n,
        "levels_trained": [slot.level for slot in done.plan.train],
        "levels_resumed": [slot.level for slot in done.resumed],
        "samples_trained": sum(slot.samples for slot in done.plan.train),
        "levels_kept": [slot.level for slot in done.plan.keep],
        "buffer": len(done.plan.buffer),
        **sizes,
        "raw_bytes": done.n * math.prod(memory.settings.input_shape),
        "seconds": seconds,
    }


def _sentence(done: dict[str, Any]) -> str:
    levels = ", ".join(map(str, done["levels_trained"])) or "none"
    if done["levels_resumed"]:
        levels += f", resumed: {', '.join(map(str, done['levels_resumed']))}"
    size = "an unknown number of bytes" if done["memory_bytes"] is None else human_bytes(done["memory_bytes"])
    if done["classifier_bytes"]:
        size += f" (file {human_bytes(done['file_bytes'])} with a classifier of earlier samples)"
    return (
        f"absorbed {done['absorbed']:,} samples from {done['source']} in {done['seconds']:.1f} s "
        f"(levels trained: {levels}; {done['buffer']:,} in the buffer); holds {done['samples']:,} samples "
        f"in {size}, raw {human_bytes(done['raw_bytes'])}"
    )
