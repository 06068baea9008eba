"""Tables of text, and the one that every comparison starts with: results grouped and averaged."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from logcl.core.text import human_bytes, one_line, spread
from logcl.experiments.result import Result
from logcl.memory.presets import BUDGETS, PRESETS, USUAL_BUDGET
from logcl.memory.presets import preset as preset_settings
from logcl.methods import keeps

Results = Sequence[Result]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Table:
    """Cells are text for people: "99.44 ± 0.02", "2.6 MB", "–" for nothing. Column names differ."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences below the table."""

    @classmethod
    def of(cls, title: str, records: Sequence[Mapping[str, str]], notes: Sequence[str] = ()) -> Table:
        """All records have the same keys, which become the columns; without records there are none."""
        columns = tuple(records[0]) if records else ()
        return cls(title, columns, tuple(tuple(r.values()) for r in records), tuple(notes))

    def records(self) -> list[dict[str, str]]:
        """The inverse of `of`: one dictionary per row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def markdown(self) -> str:
        """The table and its notes, without its title."""
        escaped = [[_cell(text) for text in row] for row in (self.columns, *self.rows)]
        head, *body = ["| " + " | ".join(row) + " |\n" for row in escaped]
        rule = "|" + "---|" * len(self.columns) + "\n"
        return "".join([head, rule, *body, *(f"\n{one_line(note)}\n" for note in self.notes)])

    def csv(self) -> str:
        """Columns and rows."""
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([self.columns, *self.rows])
        return stream.getvalue()


def _cell(text: str) -> str:
    """A Markdown cell: one line, in which no bar ends it."""
    return re.sub(r"(\\*)\|", r"\1\1\\|", one_line(text))


def group_by(results: Iterable[Result], key: Callable[[Result], Key]) -> dict[Key, list[Result]]:
    """Results with equal keys together, in order of first appearance."""
    groups: dict[Key, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def best_first(results: Results, key: Callable[[Result], Key]) -> list[tuple[Key, list[Result]]]:
    """Results with equal keys together, the group with the highest mean accuracy first."""
    return sorted(group_by(results, key).items(), key=lambda item: -mean_accuracy(item[1]))


def mean_accuracy(results: Results) -> float:
    """Final accuracy, averaged over results; -1 without any, so that they sort last."""
    return float(np.mean([result.final_accuracy for result in results] or [-1.0]))


def mean_bytes(results: Results) -> float:
    """Bytes kept, averaged over results."""
    return float(np.mean([result.memory_bytes for result in results]))


def sizes(results: Results, among: Results) -> dict[str, str]:
    """Columns of sizes: bytes kept and, where known, the classifier beside them and the file of both.

    among: all results of the table; those of early versions do not know their classifier's size.
    """
    found = {"bytes kept": human_bytes(mean_bytes(results))}
    if all(result.classifier_bytes is None for result in among):
        return found
    beside = [result.classifier_bytes for result in results if result.classifier_bytes is not None]
    if not beside:
        return {**found, "classifier": "–", "file": "–"}
    mean = float(np.mean(beside))
    return {**found, "classifier": human_bytes(mean), "file": human_bytes(mean_bytes(results) + mean)}


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; 0 for a single value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def accuracy(results: Results, digits: int = 2) -> str:
    """Final accuracy in percent: mean ± standard error over seeds."""
    return spread([100 * result.final_accuracy for result in results], digits)


def forgetting(results: Results, digits: int = 2) -> str:
    """In percent: mean ± standard error over the seeds where it is known."""
    return spread([100 * r.forgetting for r in results if r.forgetting is not None], digits)


def summary(results: Results) -> Table:
    """One row per method, stream and setting; best first within a stream; means over seeds."""
    groups = best_first(results, lambda r: (r.stream, r.subset or "", label(r)))
    several = len({key[:2] for key, _ in groups}) > 1
    records = []
    for (*stream, method), mine in sorted(groups, key=lambda item: item[0][:2]):
        record = {"stream": " · ".join(filter(None, stream))} if several else {}
        kept, raw = mean_bytes(mine), np.mean([result.raw_bytes for result in mine])
        record |= {
            "method": method,
            "seeds": str(len(mine)),
            "accuracy %": accuracy(mine),
            "forgetting %": forgetting(mine),
            **sizes(mine, results),
            "% of raw": f"{100 * kept / raw:.1f}",
        }
        for phase in ("absorb", "train"):
            spent = [result.seconds[phase] for result in mine if phase in result.seconds]
            record[f"{phase} s"] = f"{np.mean(spent):.0f}" if spent else "–"
        records.append(record)
    first = results[0]
    title = f"{first.stream}, {len(first.tasks)} tasks, {len(first.classes)} classes"
    note = (
        "Accuracy over all classes after the last task, without task labels; forgetting as in Chaudhry et "
        "al. 2018; bytes: everything a method must keep to continue with the next task. Accuracy and "
        "forgetting are means ± standard errors over seeds, bytes and seconds are means."
    )
    return Table.of("All runs" if several else title, records, [note])


def label(result: Result) -> str:
    """The method, and where its settings differ from the defaults."""
    preset = result.settings.preset
    parts = [result.method, *([preset] if preset != "fast" else [])]
    mine = result.settings.codec
    default = preset_settings(preset, result.settings.image_shape).codec if preset in PRESETS else None
    if result.has_levels and default and mine != default:
        if mine.name != default.name:
            parts.append(mine.name)
        for name, unit in (("bytes_per_sample", "B"), ("psnr", "dB")):
            if (value := getattr(mine, name, None)) not in (None, getattr(default, name, None)):
                parts.append(f"{value:g} {unit}")
    if codec := result.options.get("codec"):
        wanted = result.options.get("bytes_per_sample")
        parts += [str(codec), *([f"{wanted:g} B"] if isinstance(wanted, int | float) else [])]
    if keeps(result.method) == "budget" and result.budget not in (None, BUDGETS.get(preset, USUAL_BUDGET)):
        parts.append(str(result.budget))
    return ", ".join(parts)
