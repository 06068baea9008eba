"""Results → Markdown, JSON, CSV."""

from __future__ import annotations

import json

from logcl.core.errors import BadInput
from logcl.experiments.bench.table import Table
from logcl.experiments.report.document import Document
from logcl.experiments.report.study import Number


def markdown(document: Document) -> str:
    """Headline, tables and settings, for a README."""
    parts = [f"# {document.heading}", document.intro]
    for study, numbers in document.headlines():
        parts.append(f"## {study}" if len(document.studies) > 1 else "")
        parts.append("\n".join(map(_bullet, numbers)))
    if document.results:
        parts += [_titled("Summary", document.summary), *document.warnings]
    parts += [_titled(table.title, table) for table in document.tables]
    parts += [_titled(table.title, table) for table in (*document.settings, *filter(None, [document.runs]))]
    parts.append(f"Made {document.made} by logcl {document.version}.")
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def as_json(document: Document) -> str:
    """The results as they are, and the rows of the tables by column."""
    content = {
        "title": document.heading,
        "made": document.made,
        "summary": document.summary.records() if document.results else [],
        "tables": [{"title": table.title, "records": table.records()} for table in document.tables],
        "results": [result.model_dump(mode="json") for result in document.results],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_csv(document: Document) -> str:
    """The summary; without results the first of the other tables."""
    tables = (*([document.summary] if document.results else []), *document.tables)
    if not tables:
        raise BadInput("there is no table to write as csv, only figures")
    return tables[0].csv()


def _titled(title: str, table: Table) -> str:
    return f"## {title}\n\n{table.markdown()}"


def _bullet(number: Number) -> str:
    return f"- {number.name}: **{number.value}**" + (f" ({number.detail})" if number.detail else "")
