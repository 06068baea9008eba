"""How the results were made: settings, commands, versions, machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logcl.experiments.bench.summary import group_by, label
from logcl.experiments.bench.table import Table
from logcl.experiments.report.study import Study
from logcl.experiments.result import Result

_NOTHING = "–"
Facts = Mapping[str, str]


def settings(study: Study) -> tuple[Table, ...]:
    """The settings that differ between methods, and those that all runs of a study share."""
    columns = {}
    for runs in study.methods:
        facts = [_settings(result) for result in runs.results]
        columns[runs.label] = {  # all values, if the seeds of a method differ
            name: " / ".join(dict.fromkeys(fact.get(name, _NOTHING) for fact in facts))
            for fact in facts
            for name in fact
        }
    same, differing = _compared(list(columns.values()))
    shared = Table(f"{study.title}: settings of all runs", ("setting", "value"), tuple(same.items()))
    if not differing:
        return (shared,)
    rows = tuple((name, *values) for name, values in differing.items())
    return Table(f"{study.title}: settings that differ", ("setting", *columns), rows), shared


def runs(results: Sequence[Result]) -> Table:
    """One row per result; facts that are the same for all are notes below the table."""
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
    return Table.of("Runs: commands, commits, versions, machines", records, notes)


def mixed(results: Sequence[Result]) -> tuple[str, ...]:
    """Warnings about results that look like seeds of one setting but are not."""
    found = []
    groups = group_by(results, lambda r: (label(r), r.stream, r.subset))
    for (name, stream, _), mine in groups.items():
        _, differing = _compared([_settings(result) | {"tasks": str(len(result.tasks))} for result in mine])
        if differing:
            found.append(
                f"The {len(mine)} results of {name} on {stream} are averaged although they differ in "
                f"{', '.join(list(differing)[:4])}{' and more' if len(differing) > 4 else ''}."
            )
        seed, times = Counter(result.seed for result in mine).most_common(1)[0]
        if times > 1 and not differing:
            found.append(f"Seed {seed} of {name} on {stream} is among the results {times} times.")
    return tuple(found)


def _compared(columns: Sequence[Facts]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The facts that are the same in all columns, and the values of those that differ."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = {name: [column.get(name, _NOTHING) for column in columns] for name in names}
    same = {name: values[0] for name, values in rows.items() if len(set(values)) == 1}
    return same, {name: values for name, values in rows.items() if name not in same}


def _settings(result: Result) -> dict[str, str]:
    """Everything but the seed, under the names that `logcl run` uses."""
    values = {
        "subset": result.subset,
        "evaluate": result.evaluate,
        "budget": result.budget,
        **result.settings.model_dump(mode="json", exclude={"seed"}),
        result.method: result.options,
    }
    return dict(_flat(values))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """{"classifier": {"epochs": 20}} → classifier.epochs, 20."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield prefix + name, " × ".join(map(str, value)) or _NOTHING
        else:
            yield prefix + name, _NOTHING if value is None else str(value)
