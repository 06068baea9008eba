"""A report as one self-contained HTML page: no network, no other files."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources

import jinja2
from markupsafe import Markup

from logcl.experiments.bench.table import Table
from logcl.experiments.report import svg
from logcl.experiments.report.document import Document
from logcl.experiments.report.figures.canvas import Drawing, slug
from logcl.experiments.report.sections import Section

_NUMBER = re.compile(r"[–\-+]?\s?[\d,.]*\s?(e[+-]?\d+)?\s?(±.*|%|[kMGT]?B|s|min|h)?")


def render(document: Document) -> str:
    """The whole page."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,  # class names and commands come from users
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _resource("script.js")
    environment.globals.update(picture=_picture, numeric=_numeric, prose=_prose)
    return environment.get_template("page.html.j2").render(
        document=document,
        parts=list(_parts(document)),
        style=Markup(_resource("style.css")),
        script=Markup(script),
        # No other script may run, whatever else gets into the page.
        script_digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _resource(name: str) -> str:
    return resources.files("logcl.experiments.report").joinpath(name).read_text("utf-8")


def _parts(document: Document) -> Iterator[tuple[str, int, Section]]:
    """(id, heading level, section) in the order of the page; with several studies, each has a heading."""
    if document.tables or document.drawings:
        more = Section("Tables and figures", drawings=document.drawings, tables=document.tables)
        yield "more", 2, more
    if document.summary:
        table = replace(document.summary, title="")  # the heading replaces it
        yield "summary", 2, Section("Summary", " ".join(document.warnings), tables=(table,))
    several = len(document.studies) > 1
    for study, sections in document.sections:
        place = slug(study.title) if several else "part"
        if several:
            yield place, 2, Section(study.title)
        for section in sections:
            yield f"{place}-{slug(section.title)}", 3 if several else 2, section


def _picture(drawing: Drawing, part: str, number: int) -> Markup:
    return Markup(svg.inline(drawing, f"{part}-{number}"))


def _prose(text: str) -> Markup:
    """Text between backticks becomes code, as in the Markdown report."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else piece
        for number, piece in enumerate(pieces)
    )


def _numeric(table: Table) -> list[bool]:
    """Whether each column holds numbers, which are right-aligned."""
    columns = [{row[k] for row in table.rows} for k in range(len(table.columns))]
    return [bool(cells - {"–"}) and all(map(_NUMBER.fullmatch, cells)) for cells in columns]
