"""`logcl data`: which named data sets there are, fetching them, checking them."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from logcl.core.bars import Bars
from logcl.core.errors import DataError
from logcl.streams.catalog import CATALOG, named
from logcl.streams.check import Report, check, locate
from logcl.streams.sources import download, download_folder

app = typer.Typer(help="Named data sets: list them, get them, check them.", no_args_is_help=True)

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder with the official files; without it LOGCL_DATA and the cache."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_data(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the named data sets and where their files are."""
    rows = []
    for data_set in CATALOG.values():
        paths = locate(data_set, data_dir)
        rows.append(
            {
                "name": data_set.name,
                "summary": data_set.summary,
                "tasks": data_set.tasks,
                "present": paths is not None,
                "files": [str(path) for path in paths or ()],
            }
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo(f"{row['name']:<13} {row['summary']}")
        typer.echo(f"{'':<13} {_where(row)}")


def _where(row: dict[str, Any]) -> str:
    if not row["present"]:
        return f"not here: logcl data get {row['name']}"
    return f"in {Path(row['files'][0]).parent}" if row["files"] else "comes with scikit-learn"


@app.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="A named data set.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Download a data set, unless it is already here; with --data-dir into that folder."""
    data_set = named(name)
    files: Sequence[Path] = ()
    if data_set.source is None:
        sentence = f"{name} comes with scikit-learn: there is nothing to get."
    else:
        folder = download_folder(data_set.source, data_dir)
        files = (locate(data_set, data_dir) if data_dir is None or data_dir.is_dir() else None) or ()
        if files and files[0].parent != folder:
            sentence = f"{name} is already in {files[0].parent}; `logcl data check {name}` reads it through."
        else:
            files = download(data_set.source, folder, progressbar=sys.stderr.isatty())
            sentence = f"{name} is in {folder}."
    if as_json:
        typer.echo(json.dumps({"name": name, "files": [str(path) for path in files]}, indent=2))
    else:
        typer.echo(sentence)


@app.command("check")
def check_data(
    name: Annotated[
        str | None, typer.Argument(help="A named data set; without it all that are here.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read data sets through: checksums, counts, every image. Rebuilds what the cache holds of them."""
    results: list[dict[str, Any]] = []
    read: set[str] = set()
    for data_set in [named(name)] if name else CATALOG.values():
        source = data_set.source.name if data_set.source else data_set.name
        if name is None and locate(data_set, data_dir) is None:
            results.append({"name": data_set.name, "state": "absent"})
            continue
        try:
            with Bars() as bars:
                report = check(data_set, data_dir, bars, rebuild=source not in read)
            read.add(source)
            results.append({"state": "good", **_plain(report)})
        except DataError as error:
            results.append({"name": data_set.name, "state": "bad", "reason": str(error)})
    if as_json:
        typer.echo(json.dumps(results, indent=2))
    else:
        for result in results:
            typer.echo(_line(result))
    bad = [result for result in results if result["state"] == "bad"]
    if bad:
        raise DataError(bad[0]["reason"])


def _plain(report: Report) -> dict[str, Any]:
    values = dataclasses.asdict(report)
    for file in values["files"]:
        file["path"] = str(file["path"])
    return values


def _line(result: dict[str, Any]) -> str:
    start = f"{result['name']:<13} {result['state']}"
    if result["state"] != "good":
        return start
    shape = "x".join(str(side) for side in result["image_shape"])
    test = "" if result["test"] is None else f" + {result['test']:,}"
    other = [file["path"] for file in result["files"] if file["published"] is False]
    note = f"; content right, not the published archives: {', '.join(other)}" if other else ""
    return f"{start}: {result['train']:,}{test} images {shape}, {result['classes']} classes{note}"
