"""What a report contains, independent of its format."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from importlib.metadata import version

from logcl.core.errors import BadInput
from logcl.experiments.bench.summary import summary
from logcl.experiments.bench.table import Table
from logcl.experiments.report import provenance
from logcl.experiments.report.figures.canvas import Drawing, slug
from logcl.experiments.report.sections import Section, sections
from logcl.experiments.report.study import Number, Study, headline, studies
from logcl.experiments.result import Result


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


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
    made: str = field(default_factory=_now)
    version: str = field(default_factory=lambda: version("logcl"))

    def __post_init__(self) -> None:
        if not (self.results or self.tables or self.drawings):
            raise BadInput("there is nothing to report; give at least one result")

    @property
    def heading(self) -> str:
        """The title, or the name and size of the stream."""
        return self.title or (
            self.studies[0].title if len(self.studies) == 1 else f"{len(self.results)} results"
        )

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

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the summary must know."""
        return provenance.mixed(self.results)

    @cached_property
    def provenance(self) -> tuple[Table, ...]:
        """Settings of each study, and one row per result."""
        found = [table for study in self.studies for table in provenance.settings(study)]
        return (*found, provenance.runs(self.results)) if self.results else ()

    def headlines(self) -> list[tuple[str, tuple[Number, ...]]]:
        """The headline numbers of each study, by title; a single study needs no title."""
        titles = [study.title for study in self.studies] if len(self.studies) > 1 else [""]
        return list(zip(titles, map(headline, self.studies), strict=False))

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
