"""What a report contains, and the formats it is written in: HTML, Markdown, JSON, CSV."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import jinja2

from logcl.core.errors import BadInput, BadSettings
from logcl.core.files import write_atomically
from logcl.core.text import one_line
from logcl.experiments.report.figures.canvas import Drawing, inline, save, slug
from logcl.experiments.report.sections import Section, sections
from logcl.experiments.report.study import Study, headline, mixed, provenance, studies
from logcl.experiments.result import Result, legible, make_folder
from logcl.experiments.table import Table, summary

_NUMBER = re.compile(r"[–\-+]?\s?[\d,.]*\s?(e[+-]?\d+)?\s?(±.*|%|[kMGT]?B|s|min|h)?")


@dataclass(frozen=True)
class Document:
    """Everything a report is made from; its parts are computed when first used."""

    results: tuple[Result, ...]
    title: str = ""
    """Default: the name and size of the stream."""
    intro: str = ""
    """A paragraph below the title."""
    tables: tuple[Table, ...] = ()
    """Additional tables, shown before the summary."""
    drawings: tuple[Drawing, ...] = ()
    """Additional figures, shown with those tables."""
    made: str = field(default_factory=lambda: f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M UTC}")

    def __post_init__(self) -> None:
        if not (self.results or self.tables or self.drawings):
            raise BadInput("there is nothing to report; give at least one result")

    @property
    def heading(self) -> str:
        """The title, or the name and size of the stream."""
        only = self.studies[0].title if len(self.studies) == 1 else f"{len(self.results)} results"
        return self.title or only

    @cached_property
    def studies(self) -> tuple[Study, ...]:
        """Results that can be compared, together."""
        return studies(self.results)

    @cached_property
    def summary(self) -> Table | None:
        """One row per method."""
        return summary(self.results) if self.results else None

    @cached_property
    def sections(self) -> tuple[tuple[Study, tuple[Section, ...]], ...]:
        """All details, by study."""
        return tuple((study, tuple(sections(study))) for study in self.studies)

    def parts(self) -> Iterator[tuple[str, int, Section]]:
        """(id, heading level, section) in the order of the page; with several studies, each has a heading."""
        if self.tables or self.drawings:
            yield "more", 2, Section("Tables and figures", drawings=self.drawings, tables=self.tables)
        if self.summary:
            table = replace(self.summary, title="")  # the heading replaces it
            yield "summary", 2, Section("Summary", tables=(table,))
        several = len(self.studies) > 1
        for study, found in self.sections:
            place = slug(study.title) if several else "part"
            if several:
                yield place, 2, Section(study.title)
            for section in found:
                yield f"{place}-{slug(section.title)}", 3 if several else 2, section

    def all_drawings(self) -> tuple[Drawing, ...]:
        """Every figure of the document, under distinct names."""
        found = {drawing.name: drawing for drawing in self.drawings}
        for study, parts in self.sections:
            prefix = f"{slug(study.title)}-" if len(self.studies) > 1 else ""
            for drawing in (drawing for part in parts for drawing in part.drawings):
                name = prefix + drawing.name
                while name in found:
                    name += "-more"
                found[name] = replace(drawing, name=name)
        return tuple(found.values())


def html(document: Document) -> str:
    """One self-contained page: no network, no other files."""
    return _rendered(document, "page.html.j2")


def markdown(document: Document) -> str:
    """Headline numbers, tables and settings, for a README."""
    return re.sub(r"\n{3,}", "\n\n", _rendered(document, "page.md.j2").strip()) + "\n"


def as_json(document: Document) -> str:
    """The results themselves, and the rows of all tables by column."""
    content = {
        "title": document.heading,
        "made": document.made,
        "summary": document.summary.records() if document.summary else [],
        "tables": [{"title": table.title, "records": table.records()} for table in document.tables],
        "results": [result.model_dump(mode="json") for result in document.results],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_csv(document: Document) -> str:
    """The summary, or the first table of a document without results."""
    for table in (document.summary, *document.tables):
        if table is not None:
            return table.csv()
    raise BadInput("there is no table to write as csv, only figures; choose another format")


def _rendered(document: Document, template: str) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("logcl.experiments.report", ""),
        autoescape=template == "page.html.j2",  # class names and commands come from users
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["one_line"] = one_line
    environment.filters["digest"] = lambda text: b64encode(sha256(text.encode()).digest()).decode()
    environment.globals.update(
        headline=headline, inline=inline, mixed=mixed, numeric=_numeric, provenance=provenance
    )
    return environment.get_template(template).render(document=document, version=version("logcl"))


def _numeric(table: Table) -> list[bool]:
    """Whether each column holds numbers, which are right-aligned."""
    columns = [{row[k] for row in table.rows} for k in range(len(table.columns))]
    return [bool(cells - {"–"}) and all(map(_NUMBER.fullmatch, cells)) for cells in columns]


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
    write_atomically(path, legible(FORMATS[format](document)).encode())
    return [path, *(save(document.all_drawings(), figures) if figures else [])]
