"""`logcl verify`: check a memory, and salvage the intact part of a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from logcl.cli import console
from logcl.core.errors import BadSettings, LogCLError, NotTrained
from logcl.core.text import printable


def verify(
    path: console.MemoryArgument,
    target: Annotated[
        Path | None,
        typer.Option("--salvage", metavar="NEW", help="Write the intact samples to a new memory."),
    ] = None,
    as_json: console.JsonOption = False,
) -> None:
    """Check every digest and invariant; exit 0 only if all hold or the intact part was salvaged."""
    from logcl.memory.classifier import Classifier
    from logcl.memory.memory import Memory
    from logcl.memory.salvage import salvage

    memory = Memory(path)
    with console.job("nothing was changed") as progress:
        problems = memory.verify(progress=progress)
        try:
            if not problems:
                Classifier.load(memory)
        except (NotTrained, BadSettings):
            pass  # there is none, or it is intact but too wide for the size of the file
        except LogCLError as error:
            problems = [str(error)]
        salvaged = salvage(path, target) if target else None
    report: dict[str, Any] = {"memory": str(path), "ok": not problems, "problems": problems}
    lines = [printable(p if str(path) in p else f"{path}: {p}") for p in problems]
    if not problems:
        lines = [f"{path}: intact; {memory.n:,} samples, content {memory.digest[:16]}"]
    if salvaged:
        lost = [[piece.start, piece.stop - 1] for piece in salvaged.lost]
        report["salvaged"] = {"memory": str(target), "samples": salvaged.memory.n, "lost": lost}
        spans = [f"{first:,} to {last:,}" if first < last else f"{first:,}" for first, last in lost]
        what = f"{salvaged.samples_lost:,} lost: {', '.join(spans)}" if lost else "none lost"
        lines.append(f"{target}: {salvaged.memory.n:,} intact samples saved; {what}")
    console.show(as_json, report, *lines)
    if problems and not salvaged:
        raise typer.Exit(1)
