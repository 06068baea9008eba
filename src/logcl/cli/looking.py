"""`logcl inspect`, `verify` and `export`: what reads a memory and changes nothing."""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
import zipfile
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from PIL import Image

from logcl.allocation import max_generation
from logcl.cli.console import JsonOption, MemoryArgument, job, out, print_json, print_table
from logcl.core.errors import BadInput, CannotWrite, LogCLError, NotTrained
from logcl.core.progress import Progress
from logcl.core.text import human_bytes, printable
from logcl.memory.classifier import Classifier
from logcl.memory.memory import Memory
from logcl.memory.salvage import Salvaged, salvage
from logcl.memory.samples import Run, added_errors, by_generation
from logcl.memory.snapshot import Snapshot


def inspect(path: MemoryArgument, as_json: JsonOption = False) -> None:
    """Show levels, bytes, generations, fit errors and the binary counter of a memory."""
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
        f"{human_bytes(about['memory_bytes'])} kept, {human_bytes(about['raw_bytes'])} raw; "
        f"global model: {about['classifier']['state']}\n"
    )
    out.print(
        f"{bits} units of {now.settings.unit:,} samples = {bits:b} in binary; each 1 is a local model\n"
    )
    top = max(bits.bit_length() - 1, 0)
    held = {level["level"]: level for level in about["levels"]}
    rows = [_level_row(number, held.get(number), top) for number in range(top, -1, -1)] if bits else []
    waiting = about["buffer"]
    if waiting:
        rows.append(
            ["buffer", "", f"{waiting:,}", f"{now.n - waiting + 1:,} to {now.n:,}", "raw", "0", "", ""]
        )
    print_table(["level", "bit", "samples", "indices", "generation", "error", "bytes", ""], rows)
    if held:
        _show_errors(about)
    out.print(
        f"\na sample of this memory is re-encoded at most floor(log2(n/L)) = {about['max_generation']} "
        f"times, so far {about['highest_generation']}"
    )
    if about["staged"]:
        out.print(
            f"a task was interrupted here when {', '.join(about['staged'])} had been trained; "
            f"absorbed again, it goes on from there"
        )


def verify(
    path: MemoryArgument,
    target: Annotated[
        Path | None, typer.Option("--salvage", metavar="NEW", help="Write what is intact to a new memory.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every digest and rule; exit 0 only if all hold, or if what is intact was salvaged."""
    memory = Memory(path)
    with job("nothing was changed") as progress:
        problems = memory.verify(progress=progress)
        problems += _classifier_problems(memory) if not problems else []
        salvaged = salvage(path, target) if target else None
    if as_json:
        report: dict[str, Any] = {"memory": str(path), "ok": not problems, "problems": problems}
        if salvaged:
            lost = [[piece.start, piece.stop - 1] for piece in salvaged.lost]
            report["salvaged"] = {"memory": str(target), "samples": salvaged.memory.n, "lost": lost}
        print_json(report)
    elif problems:
        for problem in problems:
            out.print(printable(f"{path}: {problem}" if str(path) not in problem else problem))
    else:
        out.print(f"{path}: all well; {memory.n:,} samples, content {memory.digest[:16]}")
    if salvaged and not as_json:
        out.print(f"{target}: {salvaged.memory.n:,} samples are intact and saved; {_lost(salvaged)}")
    if problems and not salvaged:
        raise typer.Exit(1)


def _lost(salvaged: Salvaged) -> str:
    """Which samples are lost, by index."""
    if not salvaged.lost:
        return "none is lost"
    spans = [
        f"{gap.start:,} to {gap.stop - 1:,}" if len(gap) > 1 else f"{gap.start:,}" for gap in salvaged.lost
    ]
    return f"{salvaged.samples_lost:,} are lost: sample {', '.join(spans)}"


def export(
    path: MemoryArgument,
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Where to write, without ending.")],
    form: Annotated[
        Literal["npz", "png"], typer.Option("--format", help="One .npz file, or a folder of PNG files.")
    ] = "npz",
    as_json: JsonOption = False,
) -> None:
    """Write the replayed samples, in sample order: OUT.npz with x and y, or OUT/CLASS/INDEX.png."""
    memory = Memory.open(path)
    final = target.with_name(f"{target.name}.npz") if form == "npz" and target.suffix != ".npz" else target
    if final.exists():
        raise CannotWrite(f"{final} exists; choose another name")
    partial = final.with_name(f".{final.name}.{os.getpid()}.new")
    with job(f"{final} was not written") as progress:
        now = memory.snapshot()
        try:
            (_write_npz if form == "npz" else _write_pngs)(partial, now, progress)
            partial.rename(final)
        except OSError as error:
            raise CannotWrite(f"{final} cannot be written ({error.strerror})") from error
        finally:
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)
    if as_json:
        print_json({"memory": str(path), "out": str(final), "samples": now.n})
        return
    out.print(f"{final}: {now.n:,} samples")


def _describe(memory: Memory, now: Snapshot) -> dict[str, Any]:
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
        "raw_bytes": now.n * int(np.prod(now.settings.image_shape)),
        "max_generation": max_generation(now.n, now.settings.unit),
        "highest_generation": max((run.generation for run in runs if run.errors), default=0),
        "classifier": _describe_classifier(memory),
        "settings": now.settings.model_dump(mode="json"),
    }


def _describe_run(run: Run) -> dict[str, Any]:
    return {"samples": run.count, "generation": run.generation, "errors": list(run.errors)}


def _total_error(runs: Sequence[Run]) -> float:
    """What all encodings so far have added to a sample, in the mean."""
    return sum(run.count * sum(run.errors) for run in runs) / sum(run.count for run in runs)


def _describe_classifier(memory: Memory) -> dict[str, Any]:
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
    """What each encoding added: by level, and by the age of samples."""
    numbers = range(about["highest_generation"] + 1)

    def cells(errors: Sequence[float]) -> list[str]:
        return [f"{errors[number]:.4f}" if number < len(errors) else "" for number in numbers]

    encodings = ["first", *(f"again {number}" for number in numbers[1:])]
    rows = [[str(level["level"]), *cells(level["errors"])] for level in about["levels"]]
    title = "\nerror added by the first encoding, from raw images, and by each re-encoding"
    print_table(["level", *encodings], rows, f"{title} (mean squared, pixels in 0..1)")
    rows = [
        [str(age["generation"]), f"{age['samples']:,}", *cells(age["errors"]), f"{age['error']:.4f}"]
        for age in about["generations"]
    ]
    title = "\nthe same by age: samples that were re-encoded so often"
    print_table(["generation", "samples", *encodings, "sum"], rows, title)


def _classifier_problems(memory: Memory) -> list[str]:
    try:
        Classifier.load(memory)
    except NotTrained:
        return []
    except LogCLError as error:
        return [str(error)]
    return []


def _write_npz(path: Path, now: Snapshot, progress: Progress) -> None:
    """x (n, C, H, W) uint8 and y (n,), piece by piece: the memory is never decoded whole."""
    shape = (now.n, *now.settings.image_shape)
    labels = np.empty(now.n, dtype=np.int64)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for start, x, y in now.pieces(progress):
                file.write(x.numpy().tobytes())
                labels[start : start + len(y)] = y
        with archive.open("y.npy", "w") as file:
            np.lib.format.write_array(file, np.array(now.classes)[labels] if now.n else labels)


def _write_pngs(folder: Path, now: Snapshot, progress: Progress) -> None:
    """One folder a class, one file a sample, numbered by sample index."""
    channels = now.settings.image_shape[0]
    if channels not in (1, 3, 4):
        raise BadInput(f"images of {channels} channels cannot be written as PNG; use --format npz")
    names = _folder_names([str(label) for label in now.classes])
    digits = len(str(now.n))
    folder.mkdir()
    for name in names:
        (folder / name).mkdir()
    for start, images, y in now.pieces(progress):
        for row, (image, number) in enumerate(zip(images.numpy(), y, strict=True), start=start + 1):
            pixels = image[0] if channels == 1 else image.transpose(1, 2, 0)
            Image.fromarray(pixels).save(folder / names[number] / f"{row:0{digits}}.png")


def _folder_names(classes: Sequence[str]) -> list[str]:
    """A folder name for each class. Names come from the file, so nothing in them may lead elsewhere."""
    chosen: list[str] = []
    taken: set[str] = set()
    for number, name in enumerate(classes):
        # File systems take 255 bytes, and some of them hold names equal that differ in case or composition.
        cut = re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", name).encode()[:200].decode(errors="ignore")
        safe = cut.strip(". ") or "class"
        choices = (f"{safe}-{suffix}" for suffix in count(number))
        free = next(c for c in chain([safe], choices) if _same_name(c) not in taken)
        chosen.append(free)
        taken.add(_same_name(free))
    return chosen


def _same_name(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
