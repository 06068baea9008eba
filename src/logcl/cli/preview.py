"""`logcl preview`: what a memory of some images would cost and look like at each size."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from logcl.cli import console


def preview(
    source: console.SourceArgument,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--image-shape",
            metavar="SIZE",
            help="Size to compare, e.g. 96 or 3x96x64; by default those that make sense. Repeatable.",
        ),
    ] = None,
    fit: console.FitOption = None,
    bytes_per_sample: console.BytesOption = None,
    psnr: console.PsnrOption = None,
    codec: console.CodecOption = None,
    out_path: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page to write.")] = Path(
        "preview.html"
    ),
    data_dir: console.DataDirOption = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Compare image sizes, and a backbone, before deciding: bytes, seconds, and replay to look at."""
    from logcl.experiments.preview.candidates import measure_all, recommended
    from logcl.experiments.preview.source import look
    from logcl.experiments.report import preview as page
    from logcl.experiments.result import make_folder

    asked = [console.parse_shape(size) for size in sizes or ()]
    changes = console.parse_changes(None, bytes_per_sample, psnr, codec, fit)
    make_folder(out_path.parent)
    with console.job(f"{out_path} was not written", quiet=quiet or as_json) as progress:
        found = look(source, asked, data_dir=data_dir, progress=progress)
        measured = measure_all(found, changes, progress)
        rows = [each.row for each in measured]
        best, why = recommended(rows, found)
        page.write(found, measured, best, why, out_path)
    if as_json:
        console.print_json(
            {
                "source": source, "images": found.total, "classes": found.classes, "measured": len(found),
                "rows": [{**row.model_dump(mode="json"), "file_bytes": row.file_bytes} for row in rows],
                "recommended": best.name, "option": best.option, "why": why, "page": str(out_path),
            }
        )  # fmt: skip
        return
    title = f"{source}: {found.total:,} images in {found.classes:,} classes; measured on {len(found)} of them"
    shown = page.table(rows)
    console.print_table(shown.columns, shown.rows, title, ["codec"])
    console.out.print(f"\nrecommended  {best.name}: {why}")
    console.out.print(f"to use it    logcl absorb NEW.logcl {shlex.quote(source)} {best.option}")
    console.out.print(f"page         {out_path}")
