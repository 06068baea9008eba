"""With what, on what and when the results were made: settings, commands, versions, machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logcl.experiments.bench.table import Table, label
from logcl.experiments.report.study import Study
from logcl.experiments.result import Result

_NOTHING = "–"


def settings(study: Study) -> tuple[Table, ...]:
    """What all results of a study have in common, and what tells its methods apart."""
    columns = {
        runs.label: [dict(_flat(_settings(result))) for result in runs.results] for runs in study.methods
    }
    names = list(dict.fromkeys(name for mine in columns.values() for run in mine for name in run))
    cells = {name: [_cell(mine, name) for mine in columns.values()] for name in names}
    common = tuple((name, row[0]) for name, row in cells.items() if len(set(row)) == 1)
    differing = tuple((name, *row) for name, row in cells.items() if len(set(row)) > 1)
    apart = Table(f"{study.title}: settings that differ", ("setting", *columns), differing)
    shared = Table(f"{study.title}: settings of all runs", ("setting", "value"), common)
    return (apart, shared) if differing else (shared,)


def runs(results: Sequence[Result]) -> Table:
    """One row a result; what is the same for all of them is a note below."""
    facts = [dict(_flat(_origin(result))) for result in results]
    names = list(dict.fromkeys(name for fact in facts for name in fact))
    values = {name: [fact.get(name, _NOTHING) for fact in facts] for name in names}
    same = [name for name in names if len(set(values[name])) == 1 and name != "finished"]
    differing = [name for name in names if name not in same]
    return Table(
        "Runs",
        ("stream", "method", "seed", "accuracy %", *differing),
        tuple(
            (
                result.stream,
                label(result),
                str(result.seed),
                f"{100 * result.final_accuracy:.2f}",
                *(values[name][row] for name in differing),
            )
            for row, result in enumerate(results)
        ),
        tuple(f"{name}: {values[name][0]}" for name in same if values[name][0] != _NOTHING),
    )


def mixed(results: Sequence[Result]) -> tuple[str, ...]:
    """Sentences about results that look like seeds of one setting, but are not."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((label(result), result.stream, result.subset or ""), []).append(result)
    found = []
    for (name, stream, _), mine in groups.items():
        flat = [dict(_flat(_settings(result) | {"tasks": len(result.tasks)})) for result in mine]
        differing = [key for key in flat[0] if len({run.get(key) for run in flat}) > 1]
        if differing:
            found.append(
                f"The {len(mine)} results of {name} on {stream} are averaged although they differ in "
                f"{', '.join(differing[:4])}{' and more' if len(differing) > 4 else ''}."
            )
        seed, times = Counter(result.seed for result in mine).most_common(1)[0]
        if times > 1 and not differing:
            found.append(f"Seed {seed} of {name} on {stream} is among the results {times} times.")
    return tuple(found)


def _settings(result: Result) -> dict[str, Any]:
    """By the names that `logcl run` gives them."""
    return {
        "subset": result.subset,
        "evaluate": result.evaluate,
        "budget": result.budget,
        **result.settings.model_dump(mode="json", exclude={"seed"}),  # which results of one setting differ in
        result.method: result.options,
    }


def _origin(result: Result) -> dict[str, Any]:
    return {
        "finished": result.finished,
        "command": result.command,
        "commit": result.commit,
        "versions": result.versions,
        "hardware": result.hardware,
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """generator.epochs → 20."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield prefix + name, " × ".join(map(str, value)) or _NOTHING
        else:
            yield prefix + name, _NOTHING if value is None else str(value)


def _cell(runs: Sequence[Mapping[str, str]], name: str) -> str:
    """The value of all runs of a method, or all their values."""
    return " / ".join(dict.fromkeys(run.get(name, _NOTHING) for run in runs))
