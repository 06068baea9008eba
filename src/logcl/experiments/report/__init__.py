"""Reports: results → a self-contained page, Markdown, JSON or CSV, and figures for papers.

from logcl.experiments import report
report.write(results, Path("report.html"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from logcl.core.errors import BadSettings
from logcl.core.files import write_atomically
from logcl.experiments.bench.table import Table
from logcl.experiments.report import svg
from logcl.experiments.report.document import Document, as_csv, as_json, html, markdown
from logcl.experiments.report.figures.canvas import Drawing
from logcl.experiments.result import Result, make_folder

FORMATS: dict[str, Callable[[Document], str]] = {"html": html, "md": markdown, "json": as_json, "csv": as_csv}


def write(
    results: Sequence[Result],
    path: Path,
    format: str = "html",
    *,
    title: str = "",
    intro: str = "",
    tables: Sequence[Table] = (),
    drawings: Sequence[Drawing] = (),
    figures: Path | None = None,
) -> list[Path]:
    """Write a report to `path`; returns the files written.

    `tables` and `drawings` are shown in addition to those made from the results; `figures` is a folder for
    every figure as PNG and SVG.
    """
    if format not in FORMATS:
        raise BadSettings(f"there is no format {format!r}; choose from: {', '.join(FORMATS)}")
    document = Document(tuple(results), title, intro, tuple(tables), tuple(drawings))
    make_folder(path.parent)
    write_atomically(path, FORMATS[format](document).encode())
    return [path, *(svg.save(document.all_drawings(), figures) if figures else [])]


__all__ = ["FORMATS", "Document", "Drawing", "write"]
