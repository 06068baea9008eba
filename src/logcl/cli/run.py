"""`logcl run`: a class-incremental experiment from one command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from logcl import experiment, methods
from logcl.cli.console import (
    BitsOption,
    BytesOption,
    JsonOption,
    PsnrOption,
    SetOption,
    job,
    out,
    parse_changes,
    print_json,
    print_table,
)
from logcl.diagnostics import Trap
from logcl.errors import BadSettings, CannotWrite
from logcl.methods import METHODS
from logcl.methods.exemplars import check_budget
from logcl.presets import BUDGETS, PRESETS, USUAL_BUDGET
from logcl.presets import preset as preset_settings
from logcl.result import Result
from logcl.settings import override
from logcl.streams import CATALOG, Stream, open_stream
from logcl.words import human_bytes, spread


def run(
    source: Annotated[
        str, typer.Argument(help="A named data set, an .npz file or a folder of images.")
    ] = "digits",
    tasks: Annotated[int | None, typer.Option(help="Cut the stream into so many tasks.")] = None,
    method: Annotated[
        str, typer.Option(help=f"One or several, separated by commas, or all: {', '.join(METHODS)}.")
    ] = "logcl",
    preset: Annotated[str, typer.Option(help=f"{', '.join(PRESETS)}.")] = "fast",
    budget: Annotated[
        str | None,
        typer.Option(help="What methods with a buffer may keep: 2000 (samples), 20/class, or 6.4MB."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides splits, weights and order.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Repeat with so many seeds, from --seed on.")] = 1,
    evaluate: Annotated[
        str,
        typer.Option(help="When to examine: after every task, the final one, or every so many (10)."),
    ] = "every",
    out_dir: Annotated[Path | None, typer.Option("--out", help="The run folder.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a run that is in the folder.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where the official data files are.")] = None,
    bits: BitsOption = None,
    bytes_per_sample: BytesOption = None,
    psnr: PsnrOption = None,
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn a stream task by task and show accuracy, forgetting, bytes kept and seconds."""
    named = [name.strip() for name in method.split(",")]
    names = list(METHODS) if named == ["all"] else list(dict.fromkeys(named))
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise BadSettings(f"there is no method {unknown[0]!r}; choose from: {', '.join(METHODS)}")
    cells = [(name, number) for number in range(seed, seed + seeds) for name in names]
    asked = parse_changes(changes, bits, bytes_per_sample, psnr)
    experiment.examined_every(evaluate)
    if "seed" in asked:
        raise BadSettings("--set seed would differ from --seed; use --seed")
    options = {name: _options(name, asked) for name in names}
    budget = check_budget(budget or BUDGETS.get(preset, USUAL_BUDGET))
    folder = out_dir or Path("runs") / f"{Path(source).resolve().stem}-{preset}"
    if Path(source).is_dir() and Path(source).resolve() in folder.resolve().parents:
        raise BadSettings(
            f"the run folder {folder} would lie inside the images of {source}; choose another --out"
        )
    folders = {
        cell: folder if len(cells) == 1 and out_dir else folder / f"{cell[0]}-seed{cell[1]}" for cell in cells
    }
    if not overwrite:
        _refuse_existing(folders.values())

    results: list[Result] = []
    with job("finished runs are kept, the one under way is not") as progress:
        stream, opened = None, -1
        for name, number in cells:
            if opened != number or stream is None:
                stream = open_stream(source, data_dir=data_dir, tasks=tasks, seed=number, progress=progress)
                opened = number
            settings = preset_settings(preset, stream.image_shape, source if source in CATALOG else None)
            settings = override(settings, {**asked, "seed": number})
            place = folders[name, number]
            _clear(place)
            try:
                result = experiment.run(
                    stream, name, settings, place,
                    budget=budget, options=options[name], evaluate=evaluate, progress=progress,
                    command=shlex.join(["logcl", *sys.argv[1:]]),
                )  # fmt: skip
            except BaseException:
                _clear(place)  # half a run is no run
                raise
            results.append(result)
    page = _report(results, folder)
    if as_json:
        documents = [
            {**result.model_dump(mode="json"), "folder": str(folders[cell])}
            for cell, result in zip(cells, results, strict=True)
        ]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    assert stream is not None
    _show(stream, results, folders)
    out.print(f"report       {page}")


def _report(results: list[Result], folder: Path) -> Path:
    """The page that compares them."""
    from logcl import report  # matplotlib is slow to load, and is not needed before

    (path,) = report.write(results, folder / "report.html")
    return path


def _options(method: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Take what belongs to the method, e.g. ewc.importance, out of what was asked for."""
    mine = [name for name in asked if name.startswith(f"{method}.")]
    options = {name.removeprefix(f"{method}."): asked.pop(name) for name in mine}
    methods.options_of(method, options)
    return options


def _earlier(folder: Path) -> list[Path]:
    return [folder / name for name in ("memory.logcl", "result.json") if (folder / name).exists()]


def _refuse_existing(folders: Iterable[Path]) -> None:
    """A memory is never replaced unasked: it may hold more than this run put there."""
    for path in (path for folder in folders for path in _earlier(folder)):
        raise CannotWrite(f"{path} exists from an earlier run; choose another --out or add --overwrite")


def _clear(folder: Path) -> None:
    """Remove an earlier run, at the last moment: when its replacement is about to begin."""
    try:
        for path in _earlier(folder):
            path.unlink()
    except OSError as error:
        raise CannotWrite(f"{error.filename} cannot be replaced ({error.strerror})") from error


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
                human_bytes(float(np.mean([result.memory_bytes for result in mine]))),
                human_bytes(float(np.mean([result.raw_bytes for result in mine]))),
                f"{np.mean([sum(result.seconds.values()) for result in mine]):.1f}",
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
    """Labels by distortion, in two lines: means over seeds, and the worst that happened to a level."""
    probes = [trap.probe for trap in traps if trap.probe]
    cause = "no class lies in two levels, so there is nothing to tell apart"
    if probes:
        by_image, clean, by_class = (
            f"{np.mean([getattr(probe, name) for probe in probes]):.2f}"
            for name in ("probe", "without_noise", "by_class")
        )
        cause = f"level seen in replayed images {by_image} ({clean} without noise), by their class {by_class}"
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
