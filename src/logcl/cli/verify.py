"""`logcl verify`: check a memory, and salvage the intact part of a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logcl.cli.console import JsonOption, MemoryArgument, job, out, print_json
from logcl.core.errors import LogCLError, NotTrained
from logcl.core.text import printable

if TYPE_CHECKING:
    from logcl.memory.memory import Memory
    from logcl.memory.salvage import Salvaged


def verify(
    path: MemoryArgument,
    target: Annotated[
        Path | None,
        typer.Option("--salvage", metavar="NEW", help="Write the intact samples to a new memory."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every digest and invariant; exit 0 only if all hold or the intact part was salvaged."""
    from logcl.memory.memory import Memory
    from logcl.memory.salvage import salvage

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
        out.print(f"{path}: intact; {memory.n:,} samples, content {memory.digest[:16]}")
    if salvaged and not as_json:
        out.print(f"{target}: {salvaged.memory.n:,} intact samples saved; {_lost(salvaged)}")
    if problems and not salvaged:
        raise typer.Exit(1)


def _lost(salvaged: Salvaged) -> str:
    """The indices of lost samples."""
    if not salvaged.lost:
        return "none lost"
    spans = [
        f"{gap.start:,} to {gap.stop - 1:,}" if len(gap) > 1 else f"{gap.start:,}" for gap in salvaged.lost
    ]
    return f"{salvaged.samples_lost:,} lost: {', '.join(spans)}"


def _classifier_problems(memory: Memory) -> list[str]:
    from logcl.memory.classifier import Classifier

    try:
        Classifier.load(memory)
    except NotTrained:
        return []
    except LogCLError as error:
        return [str(error)]
    return []
