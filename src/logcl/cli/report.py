"""`logcl report`: results of experiments as a page, a table, or figures for a paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from logcl.cli.console import out
from logcl.core.errors import BadInput, BadSettings
from logcl.experiments.result import Result, find

_SUFFIXES = ("html", "md", "json", "csv")


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS…", help="result.json files, or folders that hold results.")
    ],
    out_path: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE|DIR", help="Default: report.html beside the runs."),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help=f"{', '.join(_SUFFIXES)}; default: the suffix of --out, or html.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every figure as PNG and SVG into a folder.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page; default: the name of the data set.")] = "",
) -> None:
    """Compare results on one page that needs no network: tables, curves, the binary counter, replay."""
    from logcl.experiments import report  # matplotlib is slow to load, and other commands do not need it
    from logcl.experiments.report import benches

    results = _read(runs)
    chosen = _format(format, out_path)
    path = _target(runs, out_path, chosen)
    by_scale = benches.found_in(runs[0]) if len(runs) == 1 else {}
    if by_scale:
        bench = runs[0].resolve().name
        written = benches.write(bench, by_scale, path, chosen, title=title, figures=figures)
    else:
        written = report.write(results, path, chosen, title=title, figures=figures)
    out.print(
        f"report       {written[0]}    ({len(results)} result{'' if len(results) == 1 else 's'})"
        + (f"    {len(written) - 1} figure files in {figures}" if figures else "")
    )


def _read(runs: list[Path]) -> list[Result]:
    """Every result once, however often its folder is given."""
    found: dict[Path, Result] = {}
    for place in runs:
        here = {path.resolve(): result for path, result in find(place)}
        if not here:
            raise BadInput(f"{place} holds no results; give a result.json or a folder of results")
        found |= here
    return list(found.values())


def _format(asked: str | None, path: Path | None) -> str:
    """The format given, or that of the file name; they must agree."""
    suffix = path.suffix.removeprefix(".").lower() if path and not path.is_dir() else ""
    named = {"htm": "html", "markdown": "md"}.get(suffix, suffix)
    if asked is not None and asked not in _SUFFIXES:
        raise BadSettings(f"there is no format {asked!r}; choose from: {', '.join(_SUFFIXES)}")
    if named and asked is None and named not in _SUFFIXES:
        raise BadSettings(f"--out {path} names no format; add --format {', '.join(_SUFFIXES)}")
    if named in _SUFFIXES and asked is not None and named != asked:
        raise BadSettings(f"--out {path} and --format {asked} contradict each other; drop one of them")
    return asked or named or "html"


def _target(runs: list[Path], path: Path | None, format: str) -> Path:
    """The file to write: `path`, or report.FORMAT in that folder or in the one that holds all runs."""
    if path and path.suffix and not path.is_dir():
        return path
    folders = [place.resolve() if place.is_dir() else place.resolve().parent for place in runs]
    beside = Path(os.path.commonpath(folders))
    if beside == Path(beside.anchor):
        beside = Path.cwd()  # runs that have nothing in common
    return (path or beside) / f"report.{format}"
