"""A report as Markdown, JSON or CSV."""

from __future__ import annotations

import json

from logcl.core.errors import BadInput
from logcl.experiments.bench.table import Table
from logcl.experiments.report.document import Document
from logcl.experiments.report.study import Number


def markdown(document: Document) -> str:
    """Headline numbers, tables and settings, for a README."""
    parts = [f"# {document.heading}", document.intro]
    for title, numbers in document.headlines():
        parts.append(title and f"## {title}")
        parts.append("\n".join(map(_bullet, numbers)))
    if document.summary:
        parts += [_titled("Summary", document.summary), *document.warnings]
    parts += [_titled(table.title, table) for table in (*document.tables, *document.provenance)]
    parts.append(f"Made {document.made} by logcl {document.version}.")
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


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


def _titled(title: str, table: Table) -> str:
    return f"## {title}\n\n{table.markdown()}"


def _bullet(number: Number) -> str:
    return f"- {number.name}: **{number.value}**" + (f" ({number.detail})" if number.detail else "")
