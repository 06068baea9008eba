"""`logcl run`: a class-incremental experiment from one command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logcl.cli.console import (
    BytesOption,
    DataDirOption,
    JsonOption,
    PsnrOption,
    SetOption,
    err,
    job,
    out,
    parse_changes,
    print_json,
    print_table,
)
from logcl.core.errors import BadSettings, Busy, LogCLError
from logcl.core.text import human_bytes, spread

if TYPE_CHECKING:
    from logcl.experiments.result import Result
    from logcl.memory.diagnostics import Trap
    from logcl.memory.settings import Settings
    from logcl.streams import Stream


def run(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A named data set, an .npz file or a folder of class-named folders of images.",
        ),
    ] = "digits",
    tasks: Annotated[int | None, typer.Option(help="Number of tasks to split the data into.")] = None,
    method: Annotated[
        str, typer.Option(help="Method, several separated by commas, or all; see `logcl methods list`.")
    ] = "logcl",
    preset: Annotated[str, typer.Option(help="Settings to start from; see `logcl presets list`.")] = "fast",
    budget: Annotated[
        str | None,
        typer.Option(help="Limit for methods with a buffer: 2000 (samples), 20/class, or 6.4MB."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of the split, the weights and the order.")
    ] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of runs per method, with seeds counting up from --seed.")
    ] = 1,
    evaluate: Annotated[
        str, typer.Option(help="When to evaluate: after every task, after the final one, or every N tasks.")
    ] = "every",
    out_dir: Annotated[Path | None, typer.Option("--out", help="Folder for the results.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace earlier runs in the folder.")] = False,
    data_dir: DataDirOption = None,
    bytes_per_sample: BytesOption = None,
    psnr: PsnrOption = None,
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn a stream task by task and show accuracy, forgetting, bytes kept and seconds.

    After an interruption, the same command resumes each unfinished run after its last finished task.
    """
    from logcl.experiments import checkpoint
    from logcl.experiments import run as experiment
    from logcl.memory.presets import BUDGETS, USUAL_BUDGET
    from logcl.memory.presets import preset as preset_settings
    from logcl.memory.settings import override
    from logcl.methods import METHODS, find
    from logcl.methods.parts.exemplars import check_budget
    from logcl.streams import CATALOG, open_stream

    named = [name.strip() for name in method.split(",")]
    names = list(dict.fromkeys(find(name).name for name in (METHODS if named == ["all"] else named)))
    cells = [(name, number) for number in range(seed, seed + seeds) for name in names]
    asked = parse_changes(changes, bytes_per_sample, psnr)
    experiment.evaluate_every(evaluate)
    if "seed" in asked:
        raise BadSettings("--set seed is not allowed here; use --seed")
    options = {name: _options(name, asked) for name in names}
    budget = check_budget(budget or BUDGETS.get(preset, USUAL_BUDGET))
    folder = out_dir or Path("runs") / f"{Path(source).resolve().stem}-{preset}"
    if Path(source).is_dir() and Path(source).resolve() in folder.resolve().parents:
        raise BadSettings(
            f"the folder for the results, {folder}, is inside the images of {source}; choose another --out"
        )
    folders = {
        cell: folder if len(cells) == 1 and out_dir else folder / f"{cell[0]}-seed{cell[1]}" for cell in cells
    }
    if not overwrite:
        _refuse_other_runs(list(folders.values()))

    results: dict[tuple[str, int], Result] = {}
    safe = f"finished tasks are kept; resume with the same command{' without --overwrite' * overwrite}"
    with job(safe) as progress:

        @lru_cache(maxsize=1)  # cells of one seed follow each other
        def opened(number: int) -> tuple[Stream, Settings]:
            stream = open_stream(source, data_dir=data_dir, tasks=tasks, seed=number, progress=progress)
            settings = preset_settings(preset, stream.image_shape, source if source in CATALOG else None)
            return stream, override(settings, {**asked, "seed": number})

        for name, number in cells:
            path = folders[name, number] / "result.json"
            if path.exists() and not overwrite:
                results[name, number] = _finished(
                    path, name, *opened(number), budget, options[name], evaluate
                )
                checkpoint.remove(path.parent)  # left by a process killed just before it would have
        if results:
            err.print(f"logcl: {len(results)} of {len(cells)} runs were finished before and are not repeated")
        for name, number in cells:
            if (name, number) in results:
                continue
            stream, settings = opened(number)
            place = folders[name, number]
            try:
                results[name, number] = experiment.run(
                    stream, name, settings, place,
                    budget=budget, options=options[name], evaluate=evaluate, progress=progress,
                    earlier="replace" if overwrite else "continue",
                    command=shlex.join(["logcl", *sys.argv[1:]]),
                    say=lambda what: err.print(f"logcl: {what}"),
                )  # fmt: skip
            except (Busy, checkpoint.Occupied):
                raise
            except LogCLError as error:
                if not (place / checkpoint.NAME).exists():
                    raise
                raise type(error)(f"{error}; {safe}") from error
        stream, _ = opened(cells[-1][1])
    ordered = [results[cell] for cell in cells]
    from logcl.experiments import report  # matplotlib is slow to import

    (page,) = report.write(ordered, folder / "report.html")
    if as_json:
        documents = [
            {**results[cell].model_dump(mode="json"), "folder": str(folders[cell])} for cell in cells
        ]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    _show(stream, ordered, folders)
    out.print(f"report       {page}")


def _options(method: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Take the options of a method, e.g. ewc.importance, out of the changes."""
    from logcl.methods import options_of

    mine = [name for name in asked if name.startswith(f"{method}.")]
    options = {name.removeprefix(f"{method}."): asked.pop(name) for name in mine}
    options_of(method, options)  # refuses what the method does not have
    return options


def _refuse_other_runs(folders: Sequence[Path]) -> None:
    """Refuse to replace finished runs, and memories, which may hold more than a run put there."""
    from logcl.experiments import checkpoint
    from logcl.methods.logcl import MEMORY

    finished = [folder / "result.json" for folder in folders if (folder / "result.json").exists()]
    memories = [
        folder / MEMORY
        for folder in folders
        if (folder / MEMORY).exists()
        and not (folder / "result.json").exists()
        and not (folder / checkpoint.NAME).exists()
    ]
    for path in memories or (finished if len(finished) == len(folders) else []):
        raise checkpoint.Occupied(
            f"{path} exists from an earlier run; choose another --out or add --overwrite"
        )


def _finished(
    path: Path,
    method: str,
    stream: Stream,
    settings: Settings,
    budget: str,
    options: dict[str, Any],
    evaluate: str,
) -> Result:
    """The result of an earlier run; refused unless this command would run the same experiment."""
    from logcl.experiments.checkpoint import Occupied
    from logcl.experiments.result import read
    from logcl.methods import options_of

    result = read(path)
    asked = {
        "stream": stream.name,
        "subset": stream.subset,
        "classes": stream.classes,
        "task_classes": stream.task_classes,
        "method": method,
        "settings": settings,
        "options": options_of(method, options).model_dump(mode="json"),
        "budget": budget,
        "evaluate": evaluate,
    }
    if any(getattr(result, name) != value for name, value in asked.items()):
        raise Occupied(
            f"{path} is from a run with other settings or data; choose another --out or add --overwrite"
        )
    return result


def _show(stream: Stream, results: list[Result], folders: dict[tuple[str, int], Path]) -> None:
    seeds = sorted({result.seed for result in results})
    rows = []
    for name in dict.fromkeys(result.method for result in results):
        mine = [result for result in results if result.method == name]
        forgotten = [result.forgetting for result in mine if result.forgetting is not None]
        rows.append(
            [
                name,
                spread([result.final_accuracy for result in mine], 3),
                spread(forgotten, 3),
                human_bytes(fmean(result.memory_bytes for result in mine)),
                human_bytes(fmean(result.raw_bytes for result in mine)),
                f"{fmean(sum(result.seconds.values()) for result in mine):.1f}",
            ]
        )
    channels, height, width = stream.image_shape
    counted = (
        f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}, mean ± standard error"
    )
    title = (
        f"{stream.name}: {stream.samples:,} images {channels}x{height}x{width} of {len(stream.classes)} "
        f"classes in {len(stream)} tasks, {counted}"
    )
    print_table(["method", "accuracy", "forgetting", "bytes kept", "raw bytes", "seconds"], rows, title)
    traps = [result.trap for result in results if result.trap]
    if traps:
        out.print(f"\n{_trap_lines(traps)}")
    for (name, number), folder in folders.items():
        if name == "logcl" and number == seeds[0]:
            out.print(
                f"\nmemory file  {folder / 'memory.logcl'}    (try: logcl inspect {folder / 'memory.logcl'})"
            )
    out.print(
        f"results      {', '.join(str(f / 'result.json') for f in list(folders.values())[:3])}"
        + (f" and {len(folders) - 3} more" if len(folders) > 3 else "")
    )


def _trap_lines(traps: list[Trap]) -> str:
    """How far distortions give away the level, mean over seeds, and the worst level: two lines."""
    probes = [trap.probe for trap in traps if trap.probe]
    cause = "no class is in two levels"
    if probes:
        by_image, clean, by_class = (
            f"{fmean(getattr(probe, name) for probe in probes):.2f}"
            for name in ("probe", "without_noise", "by_class")
        )
        cause = (
            f"level recognised from the image {by_image} ({clean} without noise), from the class {by_class}"
        )
    levels = [(trap, level) for trap in traps for level in trap.gap.levels if level.test is not None]
    effect = "no level has test images"
    if levels:
        trap, worst = min(levels, key=lambda pair: pair[1].test or 0.0)
        name = "the buffer" if worst.level is None else f"level {worst.level}"
        gap = "" if trap.gap.gap is None else f", {trap.gap.gap:.3f} below the best"
        effect = (
            f"worst level: {name}, {worst.test:.3f} on its test classes{gap}, {worst.replay:.3f} on replay"
        )
    return f"distortions  {cause}\n             {effect}"
