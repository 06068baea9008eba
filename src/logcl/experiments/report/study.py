"""Results that can be compared: the same stream, one entry per method, with its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from logcl.core.text import human_bytes, human_seconds, spread
from logcl.experiments.bench.summary import (
    accuracy,
    forgetting,
    group_by,
    label,
    mean_accuracy,
    mean_bytes,
)
from logcl.experiments.result import Result


class Runs(NamedTuple):
    """One method (and setting) on one stream, by seed."""

    label: str
    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """The lowest seed: shown where an average makes no sense."""
        return self.results[0]


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
    kept = mean_bytes(results)
    raw = float(np.mean([r.raw_bytes for r in results]))
    found = [Number("final accuracy", f"{accuracy(results, 1)} %", f"{name}, {seeds}")]
    joint = next((runs.results for runs in study.methods if runs.first.method == "joint"), results)
    if joint is not results:
        side = "above" if mean_accuracy(results) >= mean_accuracy(joint) else "below"
        detail = f"joint training on raw data: {accuracy(joint, 1)} %"
        found.append(Number(f"points {side} joint", _gap(results, joint), detail))
    found.append(
        Number("bytes kept", human_bytes(kept), f"{100 * kept / raw:.1f} % of {human_bytes(raw)} raw")
    )
    if (lost := forgetting(results, 1)) != "–":
        found.append(Number("forgetting", f"{lost} %", "best earlier accuracy minus final accuracy"))
    for phase, what in (("absorb", "into the memory"), ("train", "the classifier")):
        spent = [r.seconds[phase] for r in results if phase in r.seconds]
        if spent:
            found.append(Number(f"time to {phase}", human_seconds(float(np.mean(spent))), what))
    return tuple(found)


def _gap(mine: Sequence[Result], joint: Sequence[Result]) -> str:
    """Percentage points between both, seed by seed if they have the same seeds."""
    other = {result.seed: result.final_accuracy for result in joint}
    gaps = [100 * (r.final_accuracy - other[r.seed]) for r in mine if r.seed in other]
    difference = 100 * (mean_accuracy(mine) - mean_accuracy(joint))
    if len(gaps) < max(len(mine), len(joint)):
        gaps = [difference]
    return spread([gap if difference >= 0 else -gap for gap in gaps], 1)
