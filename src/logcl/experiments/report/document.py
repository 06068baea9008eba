"""What is reported, whatever the format: results, and what their reader is told about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from importlib.metadata import version

from logcl.core.errors import BadInput
from logcl.experiments.bench.table import Table, summary
from logcl.experiments.report import provenance
from logcl.experiments.report.figures import Drawing
from logcl.experiments.report.figures.canvas import slug
from logcl.experiments.report.sections import Section, sections
from logcl.experiments.report.study import Number, Study, headline, studies
from logcl.experiments.result import Result


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


@dataclass(frozen=True)
class Document:
    """Everything a report is made from; its parts are made when they are asked for, and once."""

    results: tuple[Result, ...]
    title: str = ""
    """Empty for the stream's name and size."""
    intro: str = ""
    """A paragraph under the title."""
    tables: tuple[Table, ...] = ()
    """More than the summary, shown before it."""
    drawings: tuple[Drawing, ...] = ()
    """More figures, shown after those tables."""
    made: str = field(default_factory=_now)
    version: str = field(default_factory=lambda: version("logcl"))

    def __post_init__(self) -> None:
        if not (self.results or self.tables or self.drawings):
            raise BadInput("there is nothing to report: give at least one result")

    @property
    def heading(self) -> str:
        """The title, or the stream's name and size."""
        return self.title or (
            self.studies[0].title if len(self.studies) == 1 else f"{len(self.results)} results"
        )

    @cached_property
    def studies(self) -> tuple[Study, ...]:
        """Results that can be compared, together."""
        return studies(self.results)

    @cached_property
    def summary(self) -> Table:
        """One row a method."""
        return summary(self.results)

    @cached_property
    def sections(self) -> tuple[tuple[Study, tuple[Section, ...]], ...]:
        """All details, by study."""
        return tuple((study, tuple(sections(study))) for study in self.studies)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the summary must know."""
        return provenance.mixed(self.results)

    @cached_property
    def settings(self) -> tuple[Table, ...]:
        """Of all results, by study."""
        return tuple(table for study in self.studies for table in provenance.settings(study))

    @cached_property
    def runs(self) -> Table | None:
        """One row a result."""
        return provenance.runs(self.results) if self.results else None

    def headlines(self) -> list[tuple[str, tuple[Number, ...]]]:
        """By the title of a study."""
        return [(study.title, headline(study)) for study in self.studies]

    def all_drawings(self) -> Sequence[Drawing]:
        """Every figure of the document, names made unlike."""
        found = {drawing.name: drawing for drawing in self.drawings}
        for study, parts in self.sections:
            prefix = f"{slug(study.title)}-" if len(self.studies) > 1 else ""
            for drawing in (drawing for part in parts for drawing in part.drawings):
                name = prefix + drawing.name
                while name in found:
                    name += "-more"
                found[name] = replace(drawing, name=name)
        return tuple(found.values())
