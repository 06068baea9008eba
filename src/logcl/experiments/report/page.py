"""Results → one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources

import jinja2
from markupsafe import Markup

from logcl.experiments.bench.table import Table
from logcl.experiments.report import svg
from logcl.experiments.report.document import Document
from logcl.experiments.report.figures import Drawing
from logcl.experiments.report.figures.canvas import slug
from logcl.experiments.report.sections import Section
from logcl.experiments.report.study import Number

_NUMBER = re.compile(r"[–\-+]?\s?[\d,.]*\s?(e[+-]?\d+)?\s?(±.*|%|[kMGT]?B|s|min|h)?")


@dataclass(frozen=True)
class Part:
    """A section in its place on the page."""

    id: str
    level: int
    """Of its heading: 2 or 3."""
    section: Section


def render(document: Document) -> str:
    """The whole page."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,  # names of classes and commands are their users' words
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _resource("script.js")
    # Only this script may run, whatever else finds its way into the page.
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(picture=_picture, numeric=_numeric, prose=_prose)
    return environment.get_template("page.html.j2").render(
        document=document,
        headlines=_headlines(document),
        parts=list(_parts(document)),
        style=Markup(_resource("style.css")),
        script=Markup(script),
        script_digest=digest,
    )


def _resource(name: str) -> str:
    return resources.files("logcl.experiments.report").joinpath(name).read_text("utf-8")


def _headlines(document: Document) -> list[tuple[str, tuple[Number, ...]]]:
    """By study; a single one needs no name."""
    named = document.headlines()
    return named if len(named) > 1 else [("", numbers) for _, numbers in named]


def _parts(document: Document) -> Iterator[Part]:
    """In the order of the page; headings of studies only where there are several."""
    several = len(document.studies) > 1
    if document.tables or document.drawings:
        yield Part(
            "more", 2, Section("Tables and figures", drawings=document.drawings, tables=document.tables)
        )
    if document.results:
        summary = replace(document.summary, title="")  # the heading says it
        yield Part("summary", 2, Section("Summary", " ".join(document.warnings), tables=(summary,)))
    for study, sections in document.sections:
        place = slug(study.title) if several else "part"
        if several:
            yield Part(place, 2, Section(study.title))
        for section in sections:
            yield Part(f"{place}-{slug(section.title)}", 3 if several else 2, section)


def _picture(drawing: Drawing, part: str, number: int) -> Markup:
    return Markup(svg.inline(drawing, f"{part}-{number}"))


def _prose(text: str) -> Markup:
    """What stands between backticks is code, as in the Markdown report."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else piece
        for number, piece in enumerate(pieces)
    )


def _numeric(table: Table, column: int) -> bool:
    """Whether a column holds numbers, which are aligned on the right."""
    cells = [row[column] for row in table.rows]
    return any(cell != "–" for cell in cells) and all(_NUMBER.fullmatch(cell) for cell in cells)
