"""`logcl absorb`: add labelled images to a memory."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logcl.cli import console
from logcl.core.errors import BadInput, LogCLError
from logcl.core.text import human_bytes

if TYPE_CHECKING:
    from logcl.memory.memory import Absorbed, Memory
    from logcl.streams import Task


def absorb(
    path: console.MemoryArgument,
    source: console.SourceArgument,
    image_shape: console.ShapeOption = None,
    preset: Annotated[
        str | None, typer.Option(help="For a new memory: fast (default), paper-cpu, paper.")
    ] = None,
    unit: Annotated[int | None, typer.Option(min=1, help="For a new memory: samples per unit.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For a new memory: random seed.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out unreadable images.")] = False,
    from_task: Annotated[int, typer.Option(min=1, help="Number of the first task of SOURCE to absorb.")] = 1,
    data_dir: console.DataDirOption = None,
    bytes_per_sample: console.BytesOption = None,
    psnr: console.PsnrOption = None,
    changes: console.SetOption = None,
    engine: console.EngineOption = "local",
    address: console.AddressOption = None,
    logs: console.LogOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Add labelled images to a memory, created if absent; the files are not needed afterwards."""
    from logcl.integrations.logs import log_to
    from logcl.memory.file.memory_file import MemoryFile
    from logcl.memory.memory import Memory
    from logcl.memory.presets import preset as preset_settings
    from logcl.memory.settings import override
    from logcl.streams import Named, read_tasks, resolve

    shape = console.parse_shape(image_shape) if image_shape else None
    found = resolve(source)
    dataset = found.name if isinstance(found, Named) else None
    chosen: dict[str, Any] = {
        "preset": preset, "dataset": dataset, "unit": unit, "seed": seed,
        "settings": console.parse_changes(changes, bytes_per_sample, psnr),
    }  # fmt: skip
    memory = created = None
    if MemoryFile(path).exists():
        memory = Memory.open(path, shape, **chosen)
        shape = memory.settings.image_shape
        with memory.file.writing():
            pass  # refuse a second writer before reading any images
    else:
        # refuse bad settings before reading any images
        override(preset_settings(preset or "fast", shape or (1, 28, 28), dataset), chosen["settings"])
    report: list[dict[str, Any]] = []

    def state() -> str:
        if not report:
            return f"{path} is as it was before this task"
        following = from_task + len(report)
        return f"tasks up to {following - 1} are in {path}; continue with --from-task {following}"

    with console.job(state) as progress, console.chosen_engine(engine, address) as runner:
        callbacks = [log_to(place) for place in logs or ()]
        try:
            for task in read_tasks(
                found, shape, first=from_task, data_dir=data_dir, skip_bad=skip_bad, progress=progress
            ):
                for bad, reason in task.skipped:
                    console.err.print(f"skipped {bad}: {reason}")
                if memory is None:
                    shape = (*task.x.shape[1:],)
                    memory = created = Memory.open(path, shape, **chosen)
                    console.err.print(
                        f"new memory {path} for images {'x'.join(map(str, shape))} (channels x height x "
                        "width); image files of other sizes are resized; --image-shape chooses another shape"
                    )
                started = time.perf_counter()
                done = memory.absorb(
                    task.x, task.y, source=task.source, engine=runner, callbacks=callbacks, progress=progress
                )
                report.append(_describe(memory, task, done, time.perf_counter() - started))
                if not as_json:
                    console.out.print(f"{path}: {_sentence(report[-1])}")
        except BaseException as error:
            if created and not created.n and not created.file.staged():
                path.unlink()  # nothing was trained
            if report and isinstance(error, LogCLError):
                raise type(error)(f"{error}; {state()}") from error
            raise
    if not report:
        raise BadInput(f"{source} has no task {from_task}; give a smaller --from-task")
    if as_json:
        console.print_json({"memory": str(path), "tasks": report, "samples": report[-1]["samples"]})


def _describe(memory: Memory, task: Task, done: Absorbed, seconds: float) -> dict[str, Any]:
    return {
        "source": task.source,
        "absorbed": len(task),
        "skipped": [{"file": str(path), "reason": reason} for path, reason in task.skipped],
        "samples": memory.n,
        "levels_trained": [slot.level for slot in done.plan.train],
        "levels_resumed": [slot.level for slot in done.resumed],
        "samples_trained": sum(slot.samples for slot in done.plan.train),
        "levels_kept": [slot.level for slot in done.plan.keep],
        "buffer": len(done.plan.buffer),
        "memory_bytes": memory.nbytes(),
        "raw_bytes": memory.n * math.prod(memory.settings.image_shape),
        "seconds": seconds,
    }


def _sentence(done: dict[str, Any]) -> str:
    levels = ", ".join(map(str, done["levels_trained"])) or "none"
    if done["levels_resumed"]:
        levels += f", resumed: {', '.join(map(str, done['levels_resumed']))}"
    return (
        f"absorbed {done['absorbed']:,} samples from {done['source']} in {done['seconds']:.1f} s "
        f"(levels trained: {levels}; {done['buffer']:,} in the buffer); holds {done['samples']:,} samples "
        f"in {human_bytes(done['memory_bytes'])}, raw {human_bytes(done['raw_bytes'])}"
    )
