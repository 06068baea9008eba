"""What a page or a document says, part by part, before it is written in any format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from logcl.core.text import spread
from logcl.experiments.bench.table import Table
from logcl.experiments.report import figures
from logcl.experiments.report.figures import Drawing
from logcl.experiments.report.study import Runs, Study
from logcl.experiments.result import Examples, GenerationError, Result

_LISTED = 20
"""Rows of a table of the worst."""
_MOST_STRIPS = 24
"""Of more pairs of originals and replay, some are shown."""


@dataclass(frozen=True)
class Strip:
    """Originals above their replay."""

    method: str
    examples: Examples
    width: int
    """Of the strip in pixels of a page, enlarged so that small images can be seen."""

    @property
    def place(self) -> str:
        """Where the samples are held."""
        if self.examples.level < 0:
            return "buffer, still raw"
        return f"level {self.examples.level}, generation {self.examples.generation}"


@dataclass(frozen=True)
class Section:
    """A heading and what is under it."""

    title: str
    text: str = ""
    drawings: tuple[Drawing, ...] = ()
    strips: tuple[Strip, ...] = ()
    tables: tuple[Table, ...] = ()


def sections(study: Study) -> Iterator[Section]:
    """All that there is to show of a study."""
    made = (
        Section(
            "Task by task",
            drawings=_some(figures.accuracy(study), figures.memory(study), figures.seconds(study)),
        ),
        Section(
            "Accuracy on each task",
            "Each row is an examination, after the task named at its left; each column is a task. "
            "Tasks that had not come yet are left out.",
            _some(*map(figures.matrix, study.methods)),
        ),
        Section("The binary counter", drawings=_some(*map(figures.counter, _distinct(study)))),
        Section(
            "Originals and replay",
            "In each pair the upper row shows samples as they came, the lower one as they are replayed.",
            strips=tuple(strip for runs in study.methods for strip in _strips(runs)),
        ),
        _errors(study),
        _confusion(study),
        _trap(study),
    )
    return (part for part in made if part.drawings or part.strips or part.tables)


def _some(*drawings: Drawing | None) -> tuple[Drawing, ...]:
    return tuple(drawing for drawing in drawings if drawing)


def _distinct(study: Study) -> list[Runs]:
    """Methods whose counters differ: those with the same unit and tasks have the same one."""
    found: dict[tuple[object, ...], Runs] = {}
    for runs in study.methods:
        sizes = tuple(task.samples for task in runs.first.tasks)
        found.setdefault((runs.counter, runs.first.settings.unit, sizes), runs)
    return list(found.values())


def _strips(runs: Runs) -> Iterator[Strip]:
    _, height, width = runs.first.settings.image_shape
    # Whole multiples stay sharp; about 56 pixels each, so that five fit a phone.
    shown = width * max(1, round(56 / max(height, width)))
    for examples in _telling(sorted(runs.first.examples, key=lambda e: (-e.level, e.generation))):
        yield Strip(runs.label, examples, min(shown, 128) * len(examples.arrival))


def _telling(ordered: Sequence[Examples]) -> list[Examples]:
    """All of them or, of very many, the youngest of each level and stage, and the oldest of all."""
    if len(ordered) <= _MOST_STRIPS:
        return list(ordered)
    by_stage = groupby(ordered, lambda e: (e.level, figures.stage(e.generation)))
    found = [next(members) for _, members in by_stage]
    oldest = max(ordered, key=lambda e: e.generation)
    return found if oldest in found else [*found, oldest]


def _errors(study: Study) -> Section:
    drawn = [runs for runs in study.methods if figures.counted(runs)]
    between = figures.limits(drawn) if drawn else (0.0, 0.0)
    rows = [
        (
            runs.label,
            "raw, in the buffer" if found[0].generation < 0 else name,
            f"{sum(error.samples for error in found):,}",
            _scientific(mse),
            _decibel(mse),
        )
        for runs in study.methods
        for name, found in figures.stages(runs.first.reconstruction)
        for mse in (_mean_error(runs.results, found),)
    ]
    table = Table(
        "Error by generation",
        ("method", "generation", "samples", "mean squared error", "PSNR dB"),
        tuple(rows),
    )
    return Section(
        "Reconstruction errors",
        "Replayed samples against originals, pixels in [0, 1]. A generation is a re-encoding: samples of "
        "generation 0 were encoded once, from raw data. Bars are shares of samples, dashed lines means.",
        _some(*(figures.errors(runs, between) for runs in drawn)),
        tables=(table,) if rows else (),
    )


def _mean_error(results: Sequence[Result], like: Sequence[GenerationError]) -> float:
    """Mean over the samples of these generations, of all seeds."""
    wanted = {error.generation for error in like}
    found = [e for r in results for e in r.reconstruction if e.generation in wanted]
    return float(np.average([e.mse for e in found], weights=[e.samples for e in found]))


def _scientific(value: float) -> str:
    return f"{value:.5f}" if value >= 1e-4 or not value else f"{value:.1e}"


def _decibel(mse: float) -> str:
    return f"{-10 * np.log10(mse):.1f}" if mse > 0 else "–"


def _confusion(study: Study) -> Section:
    title, text = "Which classes are mistaken", "After the last task, on the whole test set."
    if len(study.methods[0].first.classes) > figures.MOST_CLASSES:
        known = [runs for runs in study.methods if runs.first.confusion]
        return Section(title, text, tables=tuple(table for runs in known for table in _worst(runs)))
    return Section(
        title,
        f"{text} Rows are true classes, columns answers; the colour is the share of the row, on a scale of "
        "square roots that shows small shares.",
        _some(*map(figures.confusion, study.methods)),
    )


def _worst(runs: Runs) -> tuple[Table, Table]:
    """The pairs most often confused, and the classes least often recognised."""
    result = runs.first
    names = result.classes
    total, right = Counter[int](), Counter[int]()
    for true, answer, count in result.confusion:
        total[true] += count
        right[true] += count if true == answer else 0
    wrong = sorted((c for c in result.confusion if c[0] != c[1]), key=lambda c: (-c[2], c[0], c[1]))
    pairs = [(names[t], names[a], str(n), f"{100 * n / total[t]:.1f}") for t, a, n in wrong[:_LISTED]]
    least = sorted(total, key=lambda k: (right[k] / total[k], k))[:_LISTED]
    return (
        Table(
            f"{runs.label}, seed {result.seed}: pairs most often confused",
            ("true class", "answer", "samples", "of the class %"),
            tuple(pairs),
        ),
        Table(
            f"{runs.label}, seed {result.seed}: classes least often recognised",
            ("class", "test samples", "recognised %"),
            tuple((names[k], str(total[k]), f"{100 * right[k] / total[k]:.1f}") for k in least),
        ),
    )


def _trap(study: Study) -> Section:
    return Section(
        "Labels by distortion",
        "Each level has a decoder of its own and holds other classes: a classifier that learned to tell "
        "decoders by their distortions would be right on replay and wrong on raw images, which shows as a "
        "level with high accuracy on replay and low accuracy on test images.",
        tables=tuple(_levels(runs) for runs in study.methods if runs.first.trap),
    )


def _levels(runs: Runs) -> Table:
    traps = [result.trap for result in runs.results if result.trap]
    rows = []
    for like in traps[0].gap.levels:
        mine = [level for trap in traps for level in trap.gap.levels if level.level == like.level]
        tested = [100 * level.test for level in mine if level.test is not None]
        name = "buffer" if like.level is None else str(like.level)
        replayed = spread([100 * level.replay for level in mine])
        rows.append((name, f"{like.samples:,}", replayed, str(like.classes), spread(tested)))
    probes = [trap.probe for trap in traps if trap.probe]
    seen = "No class lies in two levels, so there is nothing to tell apart."
    if probes:
        with_noise, clean, by_class = (
            f"{100 * np.mean([getattr(probe, name) for probe in probes]):.0f} %"
            for name in ("probe", "without_noise", "by_class")
        )
        seen = (
            f"A small network that is shown a replayed image and its class names the level it came from in "
            f"{with_noise} of cases ({clean} without the noise that the classifier is trained with); "
            f"the class alone would give {by_class}."
        )
    return Table(
        f"{runs.label}: accuracy by level",
        ("level", "samples", "on its replay %", "classes it stands for", "on their test images %"),
        tuple(rows),
        (seen,),
    )
