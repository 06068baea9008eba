"""The contents of a report, section by section, independent of its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from logcl.core.text import spread
from logcl.experiments.bench.table import Table
from logcl.experiments.report.figures import counter, histograms, lines, maps
from logcl.experiments.report.figures.canvas import Drawing
from logcl.experiments.report.study import Runs, Study
from logcl.experiments.result import Examples, pooled

_LISTED = 20
"""Rows in a table of the worst classes."""
_MOST_STRIPS = 24
"""Of more strips of originals and replay, a selection is shown."""


class Strip(NamedTuple):
    """Originals above their replay."""

    method: str
    place: str
    """Where the samples are held."""
    examples: Examples
    width: int
    """In pixels on the page: small images are enlarged."""


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    text: str = ""
    drawings: tuple[Drawing, ...] = ()
    strips: tuple[Strip, ...] = ()
    tables: tuple[Table, ...] = ()


def sections(study: Study) -> Iterator[Section]:
    """All sections of a study that have something to show."""
    made = (
        Section(
            "Task by task",
            drawings=_some(lines.accuracy(study), lines.memory(study), lines.seconds(study)),
        ),
        Section(
            "Accuracy on each task",
            "Each row is an evaluation, after the task named on its left; each column is a task. Tasks that "
            "had not arrived yet are left out.",
            _some(*map(maps.matrix, study.methods)),
        ),
        Section("The binary counter", drawings=_some(*map(counter.counter, _distinct(study)))),
        Section(
            "Originals and replay",
            "The upper row of each pair shows the original samples, the lower row their replay.",
            strips=tuple(strip for runs in study.methods for strip in _strips(runs)),
        ),
        _errors(study),
        _confusion(study),
        Section(
            "Labels by distortion",
            "Each level has its own decoder and holds other classes. A classifier that recognised decoders "
            "by their distortions would be right on replay and wrong on raw images: a level with high "
            "accuracy on replay and low accuracy on test images.",
            tables=tuple(_levels(runs) for runs in study.methods if runs.first.trap),
        ),
    )
    return (part for part in made if part.drawings or part.strips or part.tables)


def _some(*drawings: Drawing | None) -> tuple[Drawing, ...]:
    return tuple(drawing for drawing in drawings if drawing)


def _distinct(study: Study) -> list[Runs]:
    """Methods with different counters: those with the same unit and tasks have the same one."""
    found: dict[tuple[object, ...], Runs] = {}
    for runs in study.methods:
        sizes = tuple(task.samples for task in runs.first.tasks)
        found.setdefault((runs.first.has_levels, runs.first.settings.unit, sizes), runs)
    return list(found.values())


def _strips(runs: Runs) -> Iterator[Strip]:
    _, height, width = runs.first.settings.image_shape
    # Whole multiples stay sharp; about 56 pixels each, so that five fit on a phone.
    shown = width * max(1, round(56 / max(height, width)))
    for examples in _selected(sorted(runs.first.examples, key=lambda e: (-e.level, e.generation))):
        place = f"level {examples.level}, generation {examples.generation}"
        if examples.level < 0:
            place = "buffer, still raw"
        yield Strip(runs.label, place, examples, min(shown, 128) * len(examples.arrival))


def _selected(ordered: Sequence[Examples]) -> list[Examples]:
    """All of them or, if there are many, the first of each level and stage, and the highest generation."""
    if len(ordered) <= _MOST_STRIPS:
        return list(ordered)
    by_stage = groupby(ordered, lambda e: (e.level, histograms.stage(e.generation)))
    found = [next(members) for _, members in by_stage]
    oldest = max(ordered, key=lambda e: e.generation)
    return found if oldest in found else [*found, oldest]


def _errors(study: Study) -> Section:
    records = []
    for runs in study.methods:
        for name, like in histograms.stages(runs.first.reconstruction):
            generations = {error.generation for error in like}
            mse = pooled(
                [e for r in runs.results for e in r.reconstruction if e.generation in generations]
            ).mse
            records.append(
                {
                    "method": runs.label,
                    "generation": "raw, in the buffer" if like[0].generation < 0 else name,
                    "samples": f"{sum(error.samples for error in like):,}",
                    "mean squared error": f"{mse:.5f}" if mse >= 1e-4 or not mse else f"{mse:.1e}",
                    "PSNR dB": f"{-10 * np.log10(mse):.1f}" if mse > 0 else "–",
                }
            )
    return Section(
        "Reconstruction errors",
        "Replayed samples against originals, pixels in [0, 1]. The generation of a sample is how often it "
        "was re-encoded: 0 = encoded once, from raw data. Bars are shares of samples, dashed lines means.",
        histograms.errors(study.methods),
        tables=(Table.of("Error by generation", records),) if records else (),
    )


def _confusion(study: Study) -> Section:
    title, text = "Confused classes", "After the last task, on the whole test set."
    if len(study.methods[0].first.classes) > maps.MOST_CLASSES:
        known = [runs for runs in study.methods if runs.first.confusion]
        return Section(title, text, tables=tuple(table for runs in known for table in _worst(runs)))
    return Section(
        title,
        f"{text} Rows are true classes, columns predictions; the colour is the share of the row, on a "
        "square-root scale that makes small shares visible.",
        _some(*map(maps.confusion, study.methods)),
    )


def _worst(runs: Runs) -> tuple[Table, Table]:
    """The pairs most often confused, and the classes with the lowest accuracy."""
    result = runs.first
    names = result.classes
    total, right = Counter[int](), Counter[int]()
    for true, predicted, count in result.confusion:
        total[true] += count
        right[true] += count if true == predicted else 0
    wrong = sorted((c for c in result.confusion if c[0] != c[1]), key=lambda c: (-c[2], c[0], c[1]))
    pairs = [(names[t], names[p], str(n), f"{100 * n / total[t]:.1f}") for t, p, n in wrong[:_LISTED]]
    least = sorted(total, key=lambda k: (right[k] / total[k], k))[:_LISTED]
    return (
        Table(
            f"{runs.label}, seed {result.seed}: pairs most often confused",
            ("true class", "predicted class", "samples", "% of the class"),
            tuple(pairs),
        ),
        Table(
            f"{runs.label}, seed {result.seed}: classes with the lowest accuracy",
            ("class", "test samples", "accuracy %"),
            tuple((names[k], str(total[k]), f"{100 * right[k] / total[k]:.1f}") for k in least),
        ),
    )


def _levels(runs: Runs) -> Table:
    traps = [result.trap for result in runs.results if result.trap]
    records = []
    for like in traps[0].gap.levels:
        mine = [level for trap in traps for level in trap.gap.levels if level.level == like.level]
        records.append(
            {
                "level": "buffer" if like.level is None else str(like.level),
                "samples": f"{like.samples:,}",
                "accuracy on its replay %": spread([100 * level.replay for level in mine]),
                "classes": str(like.classes),
                "accuracy on their test images %": spread(
                    [100 * level.test for level in mine if level.test is not None]
                ),
            }
        )
    probes = [trap.probe for trap in traps if trap.probe]
    note = "No class lies in two levels, so there is nothing to tell apart."
    if probes:
        with_noise, clean, by_class = (
            f"{100 * np.mean([getattr(probe, name) for probe in probes]):.0f} %"
            for name in ("probe", "without_noise", "by_class")
        )
        note = (
            f"Given a replayed image and its class, a small network identifies the level it came from in "
            f"{with_noise} of cases ({clean} without the noise that the classifier is trained with); the "
            f"class alone would give {by_class}."
        )
    return Table.of(f"{runs.label}: accuracy by level", records, [note])
