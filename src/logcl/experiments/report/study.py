"""Results sorted into what can be compared: the same stream, one entry a method, its seeds together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logcl.core.text import human_bytes, human_seconds, spread
from logcl.experiments.bench.table import label
from logcl.experiments.result import Result


@dataclass(frozen=True)
class Runs:
    """One method (and setting) on one stream, by seed."""

    label: str
    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """Of the lowest seed: the one that is shown where means make no sense."""
        return self.results[0]

    @property
    def accuracy(self) -> float:
        """At the end, mean over seeds."""
        return float(np.mean([result.final_accuracy for result in self.results]))

    @property
    def counter(self) -> bool:
        """Whether samples are held in levels, as bits of their number."""
        return self.first.max_generation is not None


@dataclass(frozen=True)
class Study:
    """Methods on the same stream, in the same tasks; LogCL first, then the best."""

    title: str
    methods: tuple[Runs, ...]

    @property
    def tasks(self) -> int:
        """How many."""
        return len(self.methods[0].first.tasks)


@dataclass(frozen=True)
class Number:
    """A headline."""

    name: str
    value: str
    detail: str = ""


def studies(results: Sequence[Result]) -> tuple[Study, ...]:
    """All results, each in one study; in the order of their streams' names."""
    groups: dict[tuple[str, str, int], dict[str, list[Result]]] = {}
    for result in sorted(results, key=lambda result: result.seed):
        key = (result.stream, result.subset or "", len(result.tasks))
        groups.setdefault(key, {}).setdefault(label(result), []).append(result)
    found = []
    for key in sorted(groups):
        methods = [Runs(name, tuple(mine)) for name, mine in groups[key].items()]
        methods.sort(key=lambda runs: (not runs.counter, -runs.accuracy, runs.label))
        tasks = f"{key[2]} task{'' if key[2] == 1 else 's'}"
        parts = (key[0], key[1], tasks, f"{len(methods[0].first.classes)} classes")
        found.append(Study(", ".join(filter(None, parts)), tuple(methods)))
    return tuple(found)


def headline(study: Study) -> tuple[Number, ...]:
    """The numbers of the study's first method: LogCL, or the best if LogCL is not among them."""
    mine = study.methods[0]
    seeds = f"seed {mine.first.seed}" if len(mine.results) == 1 else f"mean of {len(mine.results)} runs"
    held = float(np.mean([r.memory_bytes for r in mine.results]))
    raw = float(np.mean([r.raw_bytes for r in mine.results]))
    forgotten = [100 * r.forgetting for r in mine.results if r.forgetting is not None]
    found = [Number("final accuracy", f"{_accuracy(mine)} %", f"{mine.label}, {seeds}")]
    joint = next((runs for runs in study.methods if runs.first.method == "joint"), None)
    if joint and joint is not mine:
        side = "above" if mine.accuracy >= joint.accuracy else "below"
        detail = f"joint training on raw data: {_accuracy(joint)} %"
        found.append(Number(f"points {side} joint", _gap(mine, joint), detail))
    found.append(
        Number("bytes kept", human_bytes(held), f"{100 * held / raw:.1f} % of {human_bytes(raw)} raw")
    )
    if forgotten:
        found.append(
            Number("forgetting", f"{spread(forgotten, 1)} %", "best earlier accuracy less the final one")
        )
    for phase, what in (("absorb", "into the memory"), ("train", "the classifier")):
        spent = [r.seconds[phase] for r in mine.results if phase in r.seconds]
        if spent:
            found.append(Number(f"time to {phase}", human_seconds(float(np.mean(spent))), what))
    return tuple(found)


def _accuracy(runs: Runs) -> str:
    return spread([100 * result.final_accuracy for result in runs.results], 1)


def _gap(mine: Runs, joint: Runs) -> str:
    """Percentage points between both, by seed where they have seeds in common."""
    other = {result.seed: result.final_accuracy for result in joint.results}
    sign = 1 if mine.accuracy >= joint.accuracy else -1
    pairs = [100 * (r.final_accuracy - other[r.seed]) for r in mine.results if r.seed in other]
    if len(pairs) < len(mine.results) or len(pairs) < len(joint.results):
        pairs = [100 * (mine.accuracy - joint.accuracy)]
    return spread([sign * gap for gap in pairs], 1)
