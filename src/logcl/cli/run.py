"""`logcl run`: a class-incremental experiment from one command."""

from __future__ import annotations

import shlex
import sys
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logcl.cli import console
from logcl.core.errors import BadSettings, Busy, LogCLError
from logcl.core.text import human_bytes, printable, spread

if TYPE_CHECKING:
    from logcl.experiments.result import Result
    from logcl.memory.diagnostics import Trap
    from logcl.memory.settings import Settings
    from logcl.streams import Stream


def run(
    source: console.SourceArgument = "digits",
    tasks: Annotated[int | None, typer.Option(help="Number of tasks to split the data into.")] = None,
    method: Annotated[
        str,
        typer.Option(
            help="One or several, separated by commas, or all; see `logcl methods list`. A Python file with "
            "a method works too."
        ),
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
    image_shape: console.ShapeOption = None,
    fit: console.FitOption = None,
    data_dir: console.DataDirOption = None,
    bytes_per_sample: console.BytesOption = None,
    psnr: console.PsnrOption = None,
    codec: console.CodecOption = None,
    backbone: console.BackboneOption = None,
    changes: console.SetOption = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Learn a stream task by task and show accuracy, forgetting, bytes kept and seconds.

    After an interruption, the same command resumes each unfinished run after its last finished task.
    """
    from logcl.experiments import checkpoint
    from logcl.experiments import run as experiment
    from logcl.experiments.featured import featured
    from logcl.memory.presets import BUDGETS, USUAL_BUDGET
    from logcl.memory.presets import preset as preset_settings
    from logcl.memory.settings import override
    from logcl.methods import METHODS, find, options_of
    from logcl.methods.parts.exemplars import check_budget
    from logcl.nn import backbones
    from logcl.streams import Named, check_fit, open_stream, resolve, survey_of

    named = [name.strip() for name in method.split(",")]
    names = list(dict.fromkeys(find(name).name for name in (METHODS if named == ["all"] else named)))
    asked = console.parse_changes(changes, bytes_per_sample, psnr, codec, fit)
    experiment.evaluate_every(evaluate)
    asked_size = None if image_shape is None else console.parse_shape(image_shape)
    way = asked.get("fit", "crop")
    check_fit(way)
    if "seed" in asked:
        raise BadSettings("--set seed is not allowed here; use --seed")
    options = {name: _options(name, asked) for name in names}
    budget = check_budget(budget or BUDGETS.get(preset, USUAL_BUDGET))
    found = resolve(source)
    dataset = found.name if isinstance(found, Named) else None
    name = dataset or Path(source).resolve().stem
    folder = out_dir or Path("runs") / f"{name}-{preset}"
    if not dataset and Path(source).is_dir() and Path(source).resolve() in folder.resolve().parents:
        raise BadSettings(
            f"the folder for the results, {folder}, is inside the images of {source}; choose another --out"
        )
    cells = [(name, number) for number in range(seed, seed + seeds) for name in names]
    folders = {cell: folder / f"{cell[0]}-seed{cell[1]}" for cell in cells}
    if len(cells) == 1 and out_dir:
        folders = {cells[0]: out_dir}
    finished = {} if overwrite else _finished(folders)
    safe = f"finished tasks are kept; resume with the same command{' without --overwrite' * overwrite}"
    with console.job(safe, quiet=quiet) as progress:
        network = None if backbone is None else backbones.named(backbone, asked_size and asked_size.shape())
        survey = survey_of(found, progress=progress) if network is None else None
        if survey and not (quiet or as_json):
            console.show_survey(f"images of {source}", survey, asked_size, way)
        shape = survey.image_shape(asked_size) if survey else asked_size

        @lru_cache(maxsize=1)  # cells of one seed follow each other
        def opened(number: int) -> tuple[Stream, Settings]:
            # Image files are read at the size that the backbone takes; it resizes all other images.
            files = isinstance(found, Path) and found.is_dir()
            size = shape if network is None else network.spec.image_shape if files else None
            stream = open_stream(
                found, data_dir=data_dir, tasks=tasks, seed=number, image_shape=size, fit=way,
                progress=progress,
            )  # fmt: skip
            if network is not None:
                stream = featured(stream, network, progress)
            spec = None if network is None else network.spec
            settings = preset_settings(preset, stream.image_shape, dataset, spec)
            return stream, experiment.settled(override(settings, {**asked, "seed": number}), stream)

        for (name, number), result in finished.items():
            stream, settings = opened(number)
            choices = {"method": name, "settings": settings, "budget": budget, "evaluate": evaluate}
            choices["options"] = options_of(name, options[name]).model_dump(mode="json")
            _check_same(folders[name, number] / "result.json", result, stream, choices)
            # Left by a process that was killed just before removing it.
            checkpoint.remove(folders[name, number])
        if finished:
            console.err.print(
                f"logcl: {len(finished)} of {len(cells)} runs were finished before and are not repeated"
            )
        for name, number in cells:
            if (name, number) in finished:
                continue
            (stream, settings), place = opened(number), folders[name, number]
            try:
                finished[name, number] = experiment.run(
                    stream, name, settings, place,
                    budget=budget, options=options[name], evaluate=evaluate, progress=progress,
                    earlier="replace" if overwrite else "continue",
                    command=printable(shlex.join(["logcl", *sys.argv[1:]])),
                    say=lambda what: console.err.print(f"logcl: {what}"),
                )  # fmt: skip
            except (Busy, checkpoint.Occupied):
                raise
            except LogCLError as error:
                if not (place / checkpoint.NAME).exists():
                    raise
                raise type(error)(f"{error}; {safe}") from error
        stream, _ = opened(cells[-1][1])
    from logcl.experiments import report  # matplotlib is slow to import

    results = {cell: finished[cell] for cell in cells}
    (page,) = report.write(list(results.values()), folder / "report.html")
    if as_json:
        documents = [
            {
                **result.model_dump(mode="json"),
                "file_bytes": result.file_bytes,
                "folder": str(folders[cell]),
            }
            for cell, result in results.items()
        ]
        console.print_json(documents[0] if len(documents) == 1 else documents)
        return
    _show(stream, list(results.values()), folders)
    console.out.print(f"report       {page}")


def _options(method: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Take the options of a method, e.g. ewc.importance, out of the changes."""
    from logcl.methods import options_of

    mine = [name for name in asked if name.startswith(f"{method}.")]
    options = {name.removeprefix(f"{method}."): asked.pop(name) for name in mine}
    options_of(method, options)  # refuses what the method does not have
    return options


def _finished(folders: dict[tuple[str, int], Path]) -> dict[tuple[str, int], Result]:
    """Results of finished runs. Refuses if all runs are finished, and if a memory belongs to none of them."""
    from logcl.experiments import checkpoint
    from logcl.experiments.result import read
    from logcl.methods.logcl import MEMORY

    paths = {cell: path for cell, folder in folders.items() if (path := folder / "result.json").exists()}
    occupied = list(paths.values()) if len(paths) == len(folders) else []
    for cell, folder in folders.items():
        if (folder / MEMORY).exists() and cell not in paths and not (folder / checkpoint.NAME).exists():
            occupied = [folder / MEMORY]
    if occupied:
        raise checkpoint.Occupied(
            f"{occupied[0]} exists from an earlier run; choose another --out or add --overwrite"
        )
    return {cell: read(path) for cell, path in paths.items()}


def _check_same(path: Path, result: Result, stream: Stream, choices: dict[str, Any]) -> None:
    """Refuse the result of an earlier run unless this command would run the same experiment."""
    from logcl.experiments.checkpoint import Occupied
    from logcl.experiments.result import legible

    parts = ("subset", "classes", "task_classes")
    choices = {"stream": stream.name, **{part: getattr(stream, part) for part in parts}, **choices}
    if any(getattr(result, name) != legible(value) for name, value in choices.items()):
        raise Occupied(
            f"{path} is from a run with other settings or data; choose another --out or add --overwrite"
        )


def _show(stream: Stream, results: list[Result], folders: dict[tuple[str, int], Path]) -> None:
    from logcl.experiments.table import group_by, sizes

    rows = [
        [
            name,
            spread([result.final_accuracy for result in mine], 3),
            spread([result.forgetting for result in mine if result.forgetting is not None], 3),
            *sizes(mine, results).values(),
            human_bytes(fmean(result.raw_bytes for result in mine)),
            f"{fmean(sum(result.seconds.values()) for result in mine):.1f}",
        ]
        for name, mine in group_by(results, lambda result: result.method).items()
    ]
    first, last = results[0].seed, results[-1].seed
    title = (
        f"{stream.name}: {stream.samples:,} images {'x'.join(map(str, stream.image_shape))} of "
        f"{len(stream.classes)} classes in {len(stream)} tasks, "
        + (f"seed {first}" if first == last else f"seeds {first} to {last}, mean ± standard error")
    )
    columns = ["method", "accuracy", "forgetting", *sizes(results, results), "raw bytes", "seconds"]
    console.print_table(columns, rows, title)
    if traps := [result.trap for result in results if result.trap]:
        console.show(False, None, f"\ndistortions  {_cause(traps)}", f"             {_effect(traps)}")
    if ("logcl", first) in folders:
        memory = folders["logcl", first] / "memory.logcl"
        console.out.print(f"\nmemory file  {memory}    (try: logcl inspect {memory})")
    paths = [str(folder / "result.json") for folder in folders.values()]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    console.out.print(f"results      {', '.join(paths[:3])}{more}")


def _cause(traps: list[Trap]) -> str:
    """How far distortions give away the level, mean over seeds."""
    probes = [trap.probe for trap in traps if trap.probe]
    if not probes:
        return "no class is in two levels"
    by_image, clean, by_class = (
        f"{fmean(getattr(probe, name) for probe in probes):.2f}"
        for name in ("probe", "without_noise", "by_class")
    )
    return f"level recognised from the image {by_image} ({clean} without noise), from the class {by_class}"


def _effect(traps: list[Trap]) -> str:
    """The level with the lowest accuracy on the test images of its classes."""
    levels = [(trap, level) for trap in traps for level in trap.gap.levels if level.test is not None]
    if not levels:
        return "no level has test images"
    trap, worst = min(levels, key=lambda pair: pair[1].test or 0.0)
    name = "the buffer" if worst.level is None else f"level {worst.level}"
    gap = "" if trap.gap.gap is None else f", {trap.gap.gap:.3f} below the best"
    return f"worst level: {name}, {worst.test:.3f} on its test classes{gap}, {worst.replay:.3f} on replay"
