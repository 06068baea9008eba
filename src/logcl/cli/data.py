"""`logcl data`: the named data sets; downloading and checking them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from logcl.cli import console
from logcl.core.errors import DataError

data = typer.Typer(help="List, download and check the named data sets.", no_args_is_help=True)


@data.command("list")
def list_data(data_dir: console.DataDirOption = None, as_json: console.JsonOption = False) -> None:
    """List the named data sets and where their files are."""
    from logcl.streams.catalog import CATALOG
    from logcl.streams.check import locate

    rows, lines = [], []
    for name, data_set in CATALOG.items():
        paths = locate(data_set, data_dir)
        about = {"name": name, "summary": data_set.summary, "tasks": data_set.tasks}
        rows.append({**about, "present": paths is not None, "files": [str(path) for path in paths or ()]})
        where = f"in {paths[0].parent}" if paths else "comes with scikit-learn"
        if paths is None:
            where = f"not found; download it with `logcl data get {name}`"
        lines += [f"{name:<13} {data_set.summary}", f"{'':<13} {where}"]
    console.show(as_json, rows, *lines)


@data.command("get")
def get_data(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A named data set.")],
    data_dir: console.DataDirOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Download a data set, to --data-dir if given, unless it is already there."""
    from logcl.streams.catalog import named
    from logcl.streams.check import locate
    from logcl.streams.sources import download, download_folder

    data_set = named(name)
    files: Sequence[Path] = ()
    if data_set.source is None:
        sentence = f"{name} comes with scikit-learn; there is nothing to download"
    else:
        folder = download_folder(data_set.source, data_dir)
        files = (locate(data_set, data_dir) if data_dir is None or data_dir.is_dir() else None) or ()
        if files and files[0].parent != folder:
            sentence = f"{name} is already in {files[0].parent}; check it with `logcl data check {name}`"
        else:
            files = download(data_set.source, folder, progressbar=sys.stderr.isatty())
            sentence = f"{name} is in {folder}"
    console.show(as_json, {"name": name, "files": [str(path) for path in files]}, sentence)


@data.command("check")
def check_data(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A named data set; by default all that are present.")
    ] = None,
    data_dir: console.DataDirOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Check data sets (checksums, counts, every image) and rebuild their cache entries."""
    from logcl.streams.catalog import CATALOG, named
    from logcl.streams.check import check, locate

    results: list[dict[str, Any]] = []
    read: set[str] = set()
    for data_set in [named(name)] if name else CATALOG.values():
        source = data_set.source.name if data_set.source else data_set.name
        if name is None and locate(data_set, data_dir) is None:
            results.append({"name": data_set.name, "state": "absent"})
            continue
        try:
            with console.job("nothing was changed") as progress:
                report = check(data_set, data_dir, progress, rebuild=source not in read)
            read.add(source)
            files = [{**dataclasses.asdict(file), "path": str(file.path)} for file in report.files]
            results.append({"state": "good", **dataclasses.asdict(report), "files": files})
        except DataError as error:
            results.append({"name": data_set.name, "state": "bad", "reason": str(error)})
    console.show(as_json, results, *map(_line, results))
    for result in results:
        if result["state"] == "bad":
            raise DataError(result["reason"])


def _line(result: dict[str, Any]) -> str:
    start = f"{result['name']:<13} {result['state']}"
    if result["state"] != "good":
        return start
    shape = "x".join(map(str, result["image_shape"]))
    test = "" if result["test"] is None else f" + {result['test']:,}"
    other = [file["path"] for file in result["files"] if file["published"] is False]
    note = f"; correct content, but not the published archives: {', '.join(other)}" if other else ""
    return f"{start}: {result['train']:,}{test} images {shape}, {result['classes']} classes{note}"
