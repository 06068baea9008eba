"""Results that can be compared: the same stream, one entry per method, with its seeds.

With their headline numbers, and how they were made: settings, commands, versions, machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from logcl.core.text import human_bytes, human_seconds, spread
from logcl.experiments.result import Result
from logcl.experiments.table import (
    Table,
    accuracy,
    forgetting,
    group_by,
    label,
    mean_accuracy,
    mean_bytes,
    sizes,
)  # fmt: skip

_NOTHING = "–"


class Runs(NamedTuple):
    """One method (and setting) on one stream, by seed."""

    label: str
    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """The lowest seed: shown where an average makes no sense."""
        return self.results[0]

    @property
    def title(self) -> str:
        """Of what is shown of the first seed."""
        return f"{self.label}, seed {self.first.seed}"


class Study(NamedTuple):
    """Methods on the same stream and tasks; LogCL first, then best first."""

    title: str
    methods: tuple[Runs, ...]

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.methods[0].first.tasks)


class Number(NamedTuple):
    """A headline number."""

    name: str
    value: str
    detail: str = ""


def studies(results: Sequence[Result]) -> tuple[Study, ...]:
    """All results, each in one study, sorted by stream."""
    by_seed = sorted(results, key=lambda result: result.seed)
    groups = group_by(by_seed, lambda r: (r.stream, r.subset or "", len(r.tasks)))
    found = []
    for (stream, subset, tasks), mine in sorted(groups.items()):
        methods = [Runs(name, tuple(runs)) for name, runs in group_by(mine, label).items()]
        methods.sort(key=lambda r: (not r.first.has_levels, -mean_accuracy(r.results), r.label))
        parts = stream, subset, f"{tasks} task{'' if tasks == 1 else 's'}", f"{len(mine[0].classes)} classes"
        found.append(Study(", ".join(filter(None, parts)), tuple(methods)))
    return tuple(found)


def headline(study: Study) -> tuple[Number, ...]:
    """The numbers of the study's first method: LogCL, or the best one if LogCL is not among them."""
    name, results = study.methods[0]
    seeds = f"seed {results[0].seed}" if len(results) == 1 else f"mean of {len(results)} runs"
    kept, raw = mean_bytes(results), float(np.mean([r.raw_bytes for r in results]))
    found = [Number("final accuracy", f"{accuracy(results, 1)} %", f"{name}, {seeds}")]
    joint = next((runs.results for runs in study.methods if runs.first.method == "joint"), results)
    if joint is not results:
        difference = 100 * (mean_accuracy(results) - mean_accuracy(joint))
        other = {result.seed: result.final_accuracy for result in joint}
        gaps = [100 * (r.final_accuracy - other[r.seed]) for r in results if r.seed in other]
        if len(gaps) < max(len(results), len(joint)):
            gaps = [difference]  # not the same seeds
        side, sign = ("above", 1) if difference >= 0 else ("below", -1)
        detail = f"joint training on raw data: {accuracy(joint, 1)} %"
        found.append(Number(f"points {side} joint", spread([sign * gap for gap in gaps], 1), detail))
    share = f"{100 * kept / raw:.1f} % of {human_bytes(raw)} raw"
    size, *others = sizes(results, results).items()
    share += "".join(f"; {name} {more}" for name, more in others)
    found.append(Number(*size, share))
    if (lost := forgetting(results, 1)) != _NOTHING:
        found.append(Number("forgetting", f"{lost} %", "best earlier accuracy minus final accuracy"))
    for phase, what in (("absorb", "into the memory"), ("train", "the classifier")):
        if spent := [r.seconds[phase] for r in results if phase in r.seconds]:
            found.append(Number(f"time to {phase}", human_seconds(float(np.mean(spent))), what))
    return tuple(found)


def provenance(studies: Sequence[Study], results: Sequence[Result]) -> tuple[Table, ...]:
    """Of each study the settings that differ between methods and those that all runs share; and all runs.

    There is one row per result; facts that are the same for all are notes below the table.
    """
    if not results:
        return ()
    tables = []
    for study in studies:
        columns = {}
        for runs in study.methods:
            facts = [_settings(result) for result in runs.results]
            _, values = _compared(facts)  # all values, if the seeds of a method differ
            columns[runs.label] = facts[0] | {k: " / ".join(dict.fromkeys(v)) for k, v in values.items()}
        same, differing = _compared(list(columns.values()))
        if differing:
            rows = tuple((name, *values) for name, values in differing.items())
            tables.append(Table(f"{study.title}: settings that differ", ("setting", *columns), rows))
        title = f"{study.title}: settings of all runs"
        tables.append(Table(title, ("setting", "value"), tuple(same.items())))
    origin = ("command", "commit", "versions", "hardware")
    facts = [dict(_flat({name: getattr(result, name) for name in origin})) for result in results]
    same, differing = _compared(facts)
    records = [
        {
            "stream": result.stream,
            "method": label(result),
            "seed": str(result.seed),
            "accuracy %": f"{100 * result.final_accuracy:.2f}",
            "finished": result.finished,
            **{name: values[row] for name, values in differing.items()},
        }
        for row, result in enumerate(results)
    ]
    notes = [f"{name}: {value}" for name, value in same.items() if value != _NOTHING]
    return (*tables, Table.of("Runs: commands, commits, versions, machines", records, notes))


def mixed(results: Sequence[Result]) -> tuple[str, ...]:
    """Warnings about results that look like seeds of one setting but are not."""
    found = []
    groups = group_by(results, lambda r: (label(r), r.stream, r.subset))
    for (name, stream, _), mine in groups.items():
        _, differing = _compared([_settings(result) | {"tasks": str(len(result.tasks))} for result in mine])
        seed, times = Counter(result.seed for result in mine).most_common(1)[0]
        if differing:
            found.append(
                f"The {len(mine)} results of {name} on {stream} are averaged although they differ in "
                f"{', '.join(list(differing)[:4])}{' and more' if len(differing) > 4 else ''}."
            )
        elif times > 1:
            found.append(f"Seed {seed} of {name} on {stream} is among the results {times} times.")
    return tuple(found)


def _compared(columns: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The facts that are the same in all columns, and the values of those that differ."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = {name: [column.get(name, _NOTHING) for column in columns] for name in names}
    same = {name: values[0] for name, values in rows.items() if len(set(values)) == 1}
    return same, {name: values for name, values in rows.items() if name not in same}


def _settings(result: Result) -> dict[str, str]:
    """Everything but the seed, under the names that `logcl run` uses."""
    choices = result.model_dump(mode="json", include={"subset", "evaluate", "budget"})
    settings = result.settings.model_dump(mode="json", exclude={"seed"})
    return dict(_flat({**choices, **settings, result.method: result.options}))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """{"classifier": {"epochs": 20}} → classifier.epochs, 20."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield prefix + name, " × ".join(map(str, value)) or _NOTHING
        else:
            yield prefix + name, _NOTHING if value is None else str(value)
