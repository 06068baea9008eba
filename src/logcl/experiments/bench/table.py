"""Tables of text, written the same way to a terminal, a README, a spreadsheet and a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Cells are text for people: "99.44 ± 0.02", "2.6 MB", "–" for nothing."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences below the table."""

    def __post_init__(self) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"column names must differ: {self.columns}")

    @classmethod
    def of(cls, title: str, records: Sequence[Mapping[str, str]], notes: Sequence[str] = ()) -> Table:
        """A table of at least one record; all records have the same keys, which become the columns."""
        return cls(title, tuple(records[0]), tuple(tuple(r.values()) for r in records), tuple(notes))

    def records(self) -> list[dict[str, str]]:
        """The inverse of `of`: one dictionary per row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def markdown(self) -> str:
        """The table and its notes, without its title."""
        lines = [_line(self.columns), "|" + "---|" * len(self.columns), *map(_line, self.rows)]
        return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in self.notes)

    def csv(self) -> str:
        """Columns and rows."""
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([self.columns, *self.rows])
        return stream.getvalue()


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
