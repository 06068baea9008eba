"""The contents of a report, section by section, independent of its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from logcl.core.text import spread
from logcl.experiments.report.figures import counter, maps
from logcl.experiments.report.figures.canvas import Drawing
from logcl.experiments.report.figures.lines import MEASURES, over_tasks
from logcl.experiments.report.study import Runs, Study
from logcl.experiments.result import Examples, pooled
from logcl.experiments.table import Table

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


class Section(NamedTuple):
    """A heading and what is below it; the page adds an explanation to some of them."""

    title: str
    drawings: tuple[Drawing, ...] = ()
    strips: tuple[Strip, ...] = ()
    tables: tuple[Table, ...] = ()


def sections(study: Study) -> Iterator[Section]:
    """All sections of a study that have something to show."""
    replayed = tuple(strip for runs in study.methods for strip in _strips(runs))
    confused = tuple(table for runs in study.methods for table in _worst(runs))
    trapped = tuple(_levels(runs) for runs in study.methods if runs.first.trap)
    made = (
        Section("Task by task", _some(over_tasks(study, name) for name in MEASURES)),
        Section("Accuracy on each task", _some(map(maps.matrix, study.methods))),
        Section("The binary counter", _some(map(counter.counter, _distinct(study)))),
        Section("Originals and replay", strips=replayed),
        Section("Reconstruction errors", maps.errors(study.methods), tables=_errors(study)),
        Section("Confused classes", _some(map(maps.confusion, study.methods)), tables=confused),
        Section("Labels by distortion", tables=trapped),
    )
    return (part for part in made if part.drawings or part.strips or part.tables)


def _some(drawings: Iterable[Drawing | None]) -> tuple[Drawing, ...]:
    return tuple(drawing for drawing in drawings if drawing)


def _distinct(study: Study) -> list[Runs]:
    """Methods with different counters: those with the same unit and tasks have the same one."""
    found: dict[tuple[object, ...], Runs] = {}
    for runs in study.methods:
        sizes = tuple(task.samples for task in runs.first.tasks)
        found.setdefault((runs.first.has_levels, runs.first.settings.unit, sizes), runs)
    return list(found.values())


def _strips(runs: Runs) -> Iterator[Strip]:
    """All or, if there are many, the first of each level and stage, and the highest generation."""
    shown = sorted(runs.first.examples, key=lambda e: (-e.level, e.generation))
    if len(shown) > _MOST_STRIPS:
        oldest = max(shown, key=lambda e: e.generation)
        by_stage = groupby(shown, lambda e: (e.level, maps.stage(e.generation)))
        shown = [next(members) for _, members in by_stage]
        shown += [oldest] if oldest not in shown else []
    _, height, width = runs.first.settings.image_shape
    # Whole multiples stay sharp; about 56 pixels each, so that five fit on a phone.
    enlarged = min(width * max(1, round(56 / max(height, width))), 128)
    for examples in shown:
        held = f"level {examples.level}, generation {examples.generation}"
        place = "buffer, still raw" if examples.level < 0 else held
        yield Strip(runs.label, place, examples, enlarged * len(examples.arrival))


def _errors(study: Study) -> tuple[Table, ...]:
    records = []
    for runs in study.methods:
        for name, like in maps.stages(runs.first.reconstruction):
            generations = {error.generation for error in like}
            all_seeds = [e for r in runs.results for e in r.reconstruction if e.generation in generations]
            mse, psnr = pooled(all_seeds).mse, pooled(all_seeds).psnr
            records.append(
                {
                    "method": runs.label,
                    "generation": "raw, in the buffer" if like[0].generation < 0 else name,
                    "samples": f"{sum(error.samples for error in like):,}",
                    "mean squared error": f"{mse:.5f}" if mse >= 1e-4 or not mse else f"{mse:.1e}",
                    "PSNR dB": f"{psnr:.1f}" if psnr is not None else "–",
                }
            )
    return (Table.of("Error by generation", records),) if records else ()


def _worst(runs: Runs) -> Iterator[Table]:
    """If there are too many for a map: the pairs most often confused, and the classes of lowest accuracy."""
    names, counts = runs.first.classes, runs.first.confusion
    if len(names) <= maps.MOST_CLASSES or not counts:
        return
    total, right = Counter[int](), Counter[int]()
    for true, predicted, count in counts:
        total[true] += count
        right[true] += count if true == predicted else 0
    wrong = sorted((c for c in counts if c[0] != c[1]), key=lambda c: (-c[2], c[0], c[1]))
    yield Table(
        f"{runs.title}: pairs most often confused",
        ("true class", "predicted class", "samples", "% of the class"),
        tuple((names[t], names[p], str(n), f"{100 * n / total[t]:.1f}") for t, p, n in wrong[:_LISTED]),
    )
    least = sorted(total, key=lambda k: (right[k] / total[k], k))[:_LISTED]
    yield Table(
        f"{runs.title}: classes with the lowest accuracy",
        ("class", "test samples", "accuracy %"),
        tuple((names[k], str(total[k]), f"{100 * right[k] / total[k]:.1f}") for k in least),
    )


def _levels(runs: Runs) -> Table:
    traps = [result.trap for result in runs.results if result.trap]
    records = []
    for like in traps[0].gap.levels:
        mine = [level for trap in traps for level in trap.gap.levels if level.level == like.level]
        tested = [100 * level.test for level in mine if level.test is not None]
        records.append(
            {
                "level": "buffer" if like.level is None else str(like.level),
                "samples": f"{like.samples:,}",
                "accuracy on its replay %": spread([100 * level.replay for level in mine]),
                "classes": str(like.classes),
                "accuracy on their test images %": spread(tested),
            }
        )
    note = "No class lies in two levels, so there is nothing to tell apart."
    if probes := [trap.probe for trap in traps if trap.probe]:
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
