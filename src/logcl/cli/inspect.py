"""`logcl inspect`: what a memory holds, level by level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from logcl.allocation import max_generation
from logcl.cli import console
from logcl.core.descriptions import described, description
from logcl.core.errors import Damaged
from logcl.core.inputs import Labels
from logcl.core.settings import BackboneSpec, BasicSettings, Frozen
from logcl.core.sizes import shape_text
from logcl.core.text import human_bytes, printable
from logcl.core.trials import MirrorTrial, Trial
from logcl.memory import claims, ledger
from logcl.memory.file.header import CLASSIFIER
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.samples import LevelHistory, Run, added_errors, by_generation

Kind = TypeVar("Kind", bound=Frozen)
_TASKS = 10  # newest tasks in the table; --json has all of them


class _Choice(Frozen):
    asked: dict[str, Any] | None = None
    trials: tuple[Trial, ...] = ()
    mirror: MirrorTrial | None = None


class _Manifest(Frozen):
    n: int
    last: int
    classes: Labels
    choice: _Choice | None = None


class _GlobalModel(Frozen):
    samples: int
    classes: Labels
    memory: str


class _Training(Frozen):
    epoch: int
    epochs: int


def inspect(path: console.MemoryArgument, as_json: console.JsonOption = False) -> None:
    """Show levels, bytes, generations, fit errors and the binary counter of a memory."""
    about = _describe(path)
    if as_json:
        console.print_json(about)
        return
    unit, last, waiting = about["unit"], about["last"], about["buffer"]
    bits = last // unit
    settings = about["settings"].get("codec")
    # As it is in the file: up to format 3 there was none, and a forged one may be anything.
    codec = printable(settings.get("name") if isinstance(settings, dict) else "of an earlier version")
    console.out.print(
        f"{path}: {about['samples']:,} samples of {len(about['classes'])} classes, {_what(about)}, preset "
        f"{about['preset']}, codec {codec}, seed {about['seed']}"
    )
    console.out.print(
        f"memory {human_bytes(about['memory_bytes'])}, classifier {human_bytes(about['classifier_bytes'])} "
        f"({about['classifier']['state']}), file {human_bytes(about['file_bytes'])}; "
        f"raw images {human_bytes(about['raw_bytes'])}\n"
    )
    if about["trials"]:
        first, *others = (Trial(**trial) for trial in about["trials"])
        console.out.print(
            f"codec chosen on the first images: {first}; then {', '.join(map(str, others)) or 'no other'}\n"
        )
    if about["mirror"]:
        console.out.print(f"{MirrorTrial(**about['mirror'])}\n")
    console.out.print(f"{bits} units of {unit:,} samples = {bits:b} in binary; each 1 is a local model\n")
    top = max(bits.bit_length() - 1, 0)
    by_level = {level["level"]: level for level in about["levels"]}
    rows = [_level_row(number, by_level.get(number), top) for number in range(top, -1, -1)] if bits else []
    if waiting:
        indices, size = f"{bits * unit + 1:,} to {last:,}", human_bytes(about["buffer_bytes"])
        rows.append(["buffer", "", f"{waiting:,}", indices, "raw", "0", size, ""])
    console.print_table(["level", "bit", "samples", "indices", "generation", "error", "bytes", ""], rows)
    if by_level:
        _show_errors(about)
    console.out.print(
        f"\neach sample is re-encoded at most floor(log2(n/L)) = {about['max_generation']} times, "
        f"so far at most {about['highest_generation']}"
    )
    if about["tasks"]:
        _show_tasks(about["tasks"])
    if about["staged"]:
        console.out.print(
            f"a task was interrupted after training {', '.join(about['staged'])}; absorb it again to resume"
        )
    if unfinished := about["classifier"].get("unfinished"):
        console.out.print(
            f"a training was interrupted after epoch {unfinished['epoch']} of {unfinished['epochs']}; `logcl "
            f"train` with the same settings continues it"
        )


def _what(about: Mapping[str, Any]) -> str:
    """What the samples are: images, or features of them."""
    if about["backbone"] is None:
        return f"images {shape_text(about['image_shape'])}"
    backbone = BackboneSpec(**about["backbone"])
    return (
        f"{backbone.features:,} features of {printable(backbone.name)} (weights {backbone.weights[:8]}) from "
        f"images {shape_text(backbone.image_shape)}"
    )


def _describe(path: Path) -> dict[str, Any]:
    """Everything that is shown, from the header and the descriptions of the parts: no torch, no codec."""
    with MemoryFile(path).at_one_moment() as file:
        return _described(file)


def _described(file: MemoryFile) -> dict[str, Any]:
    header, blobs = file.snapshot()
    fields = {"last": header.fields.get("n"), **header.fields}
    name = f"{file.path}: the header"
    manifest, settings = _known(_Manifest, fields, name), _known(BasicSettings, fields.get("settings"), name)
    levels: dict[str, LevelHistory] = {}
    for part in (part for part in blobs if part.startswith("level-")):
        where = f"{file.path}: part {part}"
        levels[part] = LevelHistory.of(description(blobs[part], where), where)
    levels = dict(sorted(levels.items(), key=lambda item: item[1].start))
    runs = [run for level in levels.values() for run in level.runs]
    model, staged = file.read_classifier(), file.staged()
    return {
        "memory": str(file.path),
        "digest": header.content,
        "samples": manifest.n,
        "last": manifest.last,
        "classes": list(manifest.classes),
        **settings.model_dump(mode="json"),
        "trials": [trial.model_dump() for trial in manifest.choice.trials] if manifest.choice else [],
        "mirror": (choice := manifest.choice) and choice.mirror and choice.mirror.model_dump(),
        "levels": [
            {
                **level.slot._asdict(),
                "samples": level.samples,
                "bytes": len(blobs[part]),
                "weights_bytes": len(blobs.get(f"weights-{(level.weights or '')[:16]}", b"")),
                "generations": [f(run.generation for run in level.runs) for f in (min, max)],
                # summed over the encodings of a sample, mean over samples
                "error": sum(run.count * sum(run.errors) for run in level.runs) / level.samples,
                "errors": list(added_errors(level.runs)),
                "runs": [_describe_run(run) for run in level.runs],
            }
            for part, level in levels.items()
        ],
        "buffer": manifest.n - sum(level.samples for level in levels.values()),
        "buffer_bytes": sum(len(blob) for part, blob in blobs.items() if part.startswith("buffer-")),
        "generations": [{**_describe_run(run), "error": sum(run.errors)} for run in by_generation(runs)],
        "tasks": [_describe_task(entry) for entry in _ledger(blobs, str(file.path))],
        "staged": sorted(set(staged) - {CLASSIFIER}),
        **file.usage().named(),
        "raw_bytes": manifest.n * math.prod(settings.input_shape),
        "max_generation": max_generation(manifest.last, settings.unit),
        "highest_generation": max((run.generation for run in runs), default=0),
        "classifier": {
            **_describe_model(model, header.content, f"{file.path}: the global model"),
            **_describe_training(staged.get(CLASSIFIER)),
        },
        "settings": header.fields["settings"],
    }


def _known(kind: type[Kind], data: Any, name: str) -> Kind:
    """Those fields of a description that `kind` has; others belong to the codec."""
    data = data if isinstance(data, Mapping) else {}
    return described(kind, {key: value for key, value in data.items() if key in kind.model_fields}, name)


def _ledger(blobs: Mapping[str, bytes], path: str) -> list[ledger.Entry]:
    names = [ledger.part_name(first) for first in ledger.first_entries(blobs)]
    sizes = ((ledger.inflated_bytes(blobs[name]), len(blobs[name])) for name in names)
    claimed = [claims.Claim(claims.ENTRIES * inflated, stored) for inflated, stored in sizes]
    if problem := claims.unjustified(claimed, {}):
        raise Damaged(f"{path}: {problem}; do not use this file")
    return [entry for name in names for entry in ledger.from_bytes(blobs[name], f"{path}: part {name}")]


def _describe_task(entry: ledger.Entry) -> dict[str, Any]:
    shown = {"start", "stop", "when", "source", "classes"}
    return {"samples": entry.samples, **entry.model_dump(mode="json", include=shown)}


def _describe_run(run: Run) -> dict[str, Any]:
    return {"samples": run.count, "generation": run.generation, "errors": list(run.errors)}


def _describe_model(blob: bytes | None, digest: str, name: str) -> dict[str, Any]:
    if blob is None:
        return {"state": "not trained yet"}
    model = _known(_GlobalModel, description(blob, name), name)
    state = "up to date" if model.memory == digest else "older than the memory"
    return {"state": state, "samples": model.samples, "classes": len(model.classes)}


def _describe_training(blob: bytes | None) -> dict[str, Any]:
    """What an interrupted training left."""
    try:
        name = "an interrupted training"
        return {} if blob is None else {"unfinished": dict(_known(_Training, description(blob, name), name))}
    except Damaged:
        return {}  # nothing can continue from it


def _show_tasks(tasks: Sequence[dict[str, Any]]) -> None:
    """Show the newest tasks of the ledger."""
    rows = []
    for number, task in list(enumerate(tasks, start=1))[-_TASKS:]:
        names = ", ".join([*map(str, task["classes"][:5]), "..."][: len(task["classes"])])
        when = task["when"].replace("T", " ").replace("Z", " UTC")
        classes = f"{len(task['classes']):,} ({names})"
        rows.append(
            [str(number), when, f"{task['samples']:,}", printable(classes), printable(task["source"])]
        )
    title = f"the last {_TASKS} of {len(tasks):,} tasks" if len(tasks) > _TASKS else "tasks"
    columns = ["task", "absorbed", "samples", "classes", "source"]
    console.print_table(columns, rows, f"\n{title}", left=("classes", "source"))


def _level_row(number: int, level: dict[str, Any] | None, top: int) -> list[str]:
    if level is None:
        return [str(number), "0", "", "", "", "", "", ""]
    youngest, oldest = level["generations"]
    span = str(youngest) if youngest == oldest else f"{youngest} to {oldest}"
    bar = "█" * max(round(8 * 2.0 ** (number - top)), 1)
    return [
        str(number), "1", f"{level['samples']:,}", f"{level['start']:,} to {level['stop']:,}",
        span, f"{level['error']:.4f}", human_bytes(level["bytes"] + level["weights_bytes"]), bar,
    ]  # fmt: skip


def _show_errors(about: dict[str, Any]) -> None:
    """Show the error added by each encoding, per level and per generation."""
    numbers = range(about["highest_generation"] + 1)

    def cells(errors: Sequence[float]) -> list[str]:
        return [f"{errors[number]:.4f}" if number < len(errors) else "" for number in numbers]

    encodings = ["first", *(f"re-encoding {number}" for number in numbers[1:])]
    rows = [[str(level["level"]), *cells(level["errors"])] for level in about["levels"]]
    title = "\nerror added by the first encoding, of raw images, and by each re-encoding"
    console.print_table(["level", *encodings], rows, f"{title} (mean squared, pixels in 0..1)")
    rows = [
        [str(age["generation"]), f"{age['samples']:,}", *cells(age["errors"]), f"{age['error']:.4f}"]
        for age in about["generations"]
    ]
    title = "\nthe same by generation, which is how often samples were re-encoded"
    console.print_table(["generation", "samples", *encodings, "sum"], rows, title)
