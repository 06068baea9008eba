"""Tables of text, written the same way to a terminal, a README, a spreadsheet and a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logcl.core.text import human_bytes, spread
from logcl.experiments.result import Result
from logcl.memory.presets import BUDGETS, USUAL_BUDGET
from logcl.memory.presets import preset as preset_settings
from logcl.methods import keeps


@dataclass(frozen=True)
class Table:
    """Cells are text as people read it: "99.44 ± 0.02", "2.6 MB", "–" for nothing."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences below it."""

    def __post_init__(self) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"the columns {self.columns} have a name twice")

    def markdown(self) -> str:
        """With its notes, without its title."""
        lines = [_line(self.columns), "|" + "---|" * len(self.columns), *map(_line, self.rows)]
        return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in self.notes)

    def csv(self) -> str:
        """Columns and rows."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return stream.getvalue()

    def records(self) -> list[dict[str, str]]:
        """A dictionary a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def summary(results: Sequence[Result]) -> Table:
    """One row a method, stream and setting; best first within a stream; means over seeds."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault((result.stream, result.subset or "", label(result)), []).append(result)
    order = sorted(groups, key=lambda key: (key[:2], -np.mean([r.final_accuracy for r in groups[key]])))
    several = len({key[:2] for key in groups}) > 1
    rows = []
    for key in order:
        mine = groups[key]
        forgotten = [100 * r.forgetting for r in mine if r.forgetting is not None]
        held = float(np.mean([r.memory_bytes for r in mine]))
        rows.append(
            (
                *((" · ".join(filter(None, key[:2])),) if several else ()),
                key[2],
                str(len(mine)),
                spread([100 * r.final_accuracy for r in mine]),
                spread(forgotten),
                human_bytes(held),
                f"{100 * held / np.mean([r.raw_bytes for r in mine]):.1f}",
                *(_seconds(mine, phase) for phase in ("absorb", "train")),
            )
        )
    columns = (
        "method",
        "seeds",
        "accuracy %",
        "forgetting %",
        "bytes kept",
        "of raw %",
        "absorb s",
        "train s",
    )
    first = results[0]
    title = f"{first.stream}, {len(first.tasks)} tasks, {len(first.classes)} classes"
    return Table(
        title="All runs" if several else title,
        columns=("stream", *columns) if several else columns,
        rows=tuple(rows),
        notes=(
            "Accuracy is over all classes after the last task, no task label given; forgetting as Chaudhry "
            "et al. 2018; bytes are all that is needed to go on; mean ± standard error over seeds; seconds "
            "are means.",
        ),
    )


def label(result: Result) -> str:
    """A method, with what tells its setting from the usual one."""
    parts = [result.method]
    preset = result.settings.preset
    if preset != "fast":
        parts.append(preset)
    usual = preset_settings(preset, result.settings.image_shape).generator
    mine = result.settings.generator
    if result.method == "logcl" and mine.bytes_per_sample not in (None, usual.bytes_per_sample):
        parts.append(f"{mine.bytes_per_sample:g} B")
    if result.method == "logcl" and mine.psnr not in (None, usual.psnr):
        parts.append(f"{mine.psnr:g} dB")
    if result.method == "codec-buffer":
        wanted = result.options.get("bytes_per_sample")
        parts += [result.options["codec"], *([f"{wanted:g} B"] if wanted else [])]
    if keeps(result.method) == "budget" and result.budget not in (None, BUDGETS.get(preset, USUAL_BUDGET)):
        parts.append(str(result.budget))
    return ", ".join(parts)


def _seconds(results: Sequence[Result], phase: str) -> str:
    values = [result.seconds[phase] for result in results if phase in result.seconds]
    return f"{np.mean(values):.0f}" if values else "–"
