"""`logcl inspect`: what a memory holds, level by level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from logcl.cli.console import JsonOption, MemoryArgument, out, print_json, print_table
from logcl.core.errors import NotTrained
from logcl.core.text import human_bytes

if TYPE_CHECKING:
    from logcl.memory.memory import Memory
    from logcl.memory.samples import Run
    from logcl.memory.snapshot import Snapshot


def inspect(path: MemoryArgument, as_json: JsonOption = False) -> None:
    """Show levels, bytes, generations, fit errors and the binary counter of a memory."""
    from logcl.memory.memory import Memory

    memory = Memory.open(path)
    now = memory.snapshot()
    about = _describe(memory, now)
    if as_json:
        print_json(about)
        return
    channels, height, width = now.settings.image_shape
    bits = now.n // now.settings.unit
    out.print(
        f"{path}: {now.n:,} samples of {len(now.classes)} classes, images {channels}x{height}x{width}, "
        f"preset {now.settings.preset}, seed {now.settings.seed}",
    )
    out.print(
        f"memory {human_bytes(about['memory_bytes'])}, classifier {human_bytes(about['classifier_bytes'])} "
        f"({about['classifier']['state']}), file {human_bytes(about['file_bytes'])}; "
        f"raw images {human_bytes(about['raw_bytes'])}\n"
    )
    out.print(
        f"{bits} units of {now.settings.unit:,} samples = {bits:b} in binary; each 1 is a local model\n"
    )
    top = max(bits.bit_length() - 1, 0)
    by_level = {level["level"]: level for level in about["levels"]}
    rows = [_level_row(number, by_level.get(number), top) for number in range(top, -1, -1)] if bits else []
    waiting = about["buffer"]
    if waiting:
        rows.append(
            ["buffer", "", f"{waiting:,}", f"{now.n - waiting + 1:,} to {now.n:,}", "raw", "0", "", ""]
        )
    print_table(["level", "bit", "samples", "indices", "generation", "error", "bytes", ""], rows)
    if by_level:
        _show_errors(about)
    out.print(
        f"\neach sample is re-encoded at most floor(log2(n/L)) = {about['max_generation']} times, "
        f"so far at most {about['highest_generation']}"
    )
    if about["staged"]:
        out.print(
            f"a task was interrupted after training {', '.join(about['staged'])}; absorb it again to resume"
        )


def _describe(memory: Memory, now: Snapshot) -> dict[str, Any]:
    from logcl.allocation import max_generation
    from logcl.memory.samples import added_errors, by_generation

    sizes = memory.file.sizes()
    runs = now.runs
    return {
        "memory": str(memory.path),
        "digest": now.digest,
        "samples": now.n,
        "classes": list(now.classes),
        "unit": now.settings.unit,
        "levels": [
            {
                "level": level.slot.level,
                "start": level.slot.start,
                "stop": level.slot.stop,
                "samples": level.slot.samples,
                "bytes": sizes[f"level-{level.slot.level}"],
                "generations": [f(run.generation for run in level.runs) for f in (min, max)],
                "error": _total_error(level.runs),
                "errors": list(added_errors(level.runs)),
                "runs": [_describe_run(run) for run in level.runs],
            }
            for level in now.levels
        ],
        "buffer": len(now.buffer),
        "generations": [
            {**_describe_run(run), "error": sum(run.errors)} for run in by_generation(runs) if run.errors
        ],
        "staged": sorted(memory.file.staged()),
        "memory_bytes": memory.nbytes(),
        "classifier_bytes": sizes.get("classifier", 0),
        "file_bytes": memory.path.stat().st_size,
        "raw_bytes": now.n * math.prod(now.settings.image_shape),
        "max_generation": max_generation(now.n, now.settings.unit),
        "highest_generation": max((run.generation for run in runs if run.errors), default=0),
        "classifier": _describe_classifier(memory),
        "settings": now.settings.model_dump(mode="json"),
    }


def _describe_run(run: Run) -> dict[str, Any]:
    return {"samples": run.count, "generation": run.generation, "errors": list(run.errors)}


def _total_error(runs: Sequence[Run]) -> float:
    """Error per sample, summed over its encodings; mean over samples."""
    return sum(run.count * sum(run.errors) for run in runs) / sum(run.count for run in runs)


def _describe_classifier(memory: Memory) -> dict[str, Any]:
    from logcl.memory.classifier import Classifier

    try:
        about = Classifier.describe(memory)
    except NotTrained:
        return {"state": "not trained yet"}
    state = "up to date" if about.memory == memory.digest else "older than the memory"
    return {"state": state, "samples": about.samples, "classes": len(about.classes)}


def _level_row(number: int, level: dict[str, Any] | None, top: int) -> list[str]:
    if level is None:
        return [str(number), "0", "", "", "", "", "", ""]
    youngest, oldest = level["generations"]
    span = str(youngest) if youngest == oldest else f"{youngest} to {oldest}"
    bar = "█" * max(round(8 * 2.0 ** (number - top)), 1)
    return [
        str(number), "1", f"{level['samples']:,}", f"{level['start']:,} to {level['stop']:,}",
        span, f"{level['error']:.4f}", human_bytes(level["bytes"]), bar,
    ]  # fmt: skip


def _show_errors(about: dict[str, Any]) -> None:
    """Show the error added by each encoding, per level and per generation."""
    numbers = range(about["highest_generation"] + 1)

    def cells(errors: Sequence[float]) -> list[str]:
        return [f"{errors[number]:.4f}" if number < len(errors) else "" for number in numbers]

    encodings = ["first", *(f"re-encoding {number}" for number in numbers[1:])]
    rows = [[str(level["level"]), *cells(level["errors"])] for level in about["levels"]]
    title = "\nerror added by the first encoding, of raw images, and by each re-encoding"
    print_table(["level", *encodings], rows, f"{title} (mean squared, pixels in 0..1)")
    rows = [
        [str(age["generation"]), f"{age['samples']:,}", *cells(age["errors"]), f"{age['error']:.4f}"]
        for age in about["generations"]
    ]
    title = "\nthe same per generation, the number of times that samples were re-encoded"
    print_table(["generation", "samples", *encodings, "sum"], rows, title)
