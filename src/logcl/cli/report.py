"""`logcl report`: results of experiments as a page, a table, or figures for a paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from logcl.cli import console
from logcl.core.errors import BadInput, BadSettings
from logcl.core.text import printable

if TYPE_CHECKING:
    from logcl.experiments.result import Result

_SUFFIXES = ("html", "md", "json", "csv")


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS…", help="result.json files, or folders that contain some.")
    ],
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE|DIR", help="File or folder to write; else report.html beside the runs."
        ),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help=f"{', '.join(_SUFFIXES)}; else the suffix of --out, or html.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure as PNG and SVG to a folder.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page; else the name of the data set.")] = "",
) -> None:
    """Compare results on one self-contained page: tables, curves, the binary counter, replay."""
    from logcl.experiments import report  # matplotlib is slow to import
    from logcl.experiments.report import benches
    from logcl.experiments.result import find

    found: dict[Path, Result] = {}  # each result once, even if it is named several times
    for place in runs:
        here = {path.resolve(): result for path, result in find(place)}
        if not here:
            raise BadInput(f"{place} holds no results; give a result.json or a folder that `logcl run` wrote")
        found |= here
    path, chosen = _target(runs, out_path, format)
    by_scale = benches.found_in(runs[0]) if len(runs) == 1 else {}
    if by_scale:
        bench = runs[0].resolve().name
        written = benches.write(bench, by_scale, path, chosen, title=printable(title), figures=figures)
    else:
        written = report.write(list(found.values()), path, chosen, title=printable(title), figures=figures)
    console.out.print(
        f"report       {written[0]}    ({len(found)} result{'s' * (len(found) != 1)})"
        + (f"    {len(written) - 1} figure files in {figures}" if figures else "")
    )


def _target(runs: list[Path], path: Path | None, asked: str | None) -> tuple[Path, str]:
    """The file to write, by default report.FORMAT in the folder that contains all runs, and its format."""
    if path and path.suffix and not path.is_dir():
        suffix = path.suffix.removeprefix(".").lower()
        named = {"htm": "html", "markdown": "md"}.get(suffix, suffix)
        if asked is None and named not in _SUFFIXES:
            raise BadSettings(
                f"--out {path} has an unknown suffix; add --format with one of: {', '.join(_SUFFIXES)}"
            )
        if named in _SUFFIXES and asked not in (None, named):
            raise BadSettings(f"--out {path} and --format {asked} contradict each other; leave out --format")
        return path, asked or named
    folders = [place.resolve() if place.is_dir() else place.resolve().parent for place in runs]
    beside = Path(os.path.commonpath(folders))
    if beside == Path(beside.anchor):
        beside = Path.cwd()  # the runs have no folder in common
    return (path or beside) / f"report.{asked or 'html'}", asked or "html"
