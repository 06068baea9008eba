"""The trap of labels by distortion (the paper's section 4.3), measured.

Each level has its own decoder, and levels hold different classes. If the images of one level share
distortions, the global model may learn "looks like level 3, so it is one of level 3's classes": right on
replay, useless on raw images. Two measures, one of the cause and one of the effect:

`level_probe`   is it visible which decoder an image came from?
`level_gap`     is the accuracy on classes of one level lower than on those of another, despite good replay?
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core.images import rows_at_once
from logcl.core.progress import Progress, Silent
from logcl.core.settings import Frozen, Recipe
from logcl.memory.snapshot import Snapshot
from logcl.nn.classification import averages, predict_classes
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import Work, fit, generator_for, seeded

_SAMPLES = 10_000  # replayed at most, whatever the size of the memory
_LEAST = 8  # samples of one class in one level; fewer are ignored
_SIDE = 32  # larger images are cropped to their centre: distortions are everywhere, and the probe is faster
_RECIPE = Recipe(epochs=4, min_steps=300, batch_size=64, learning_rate=3e-3)
_DRAW, _PROBE = 0xD1, 0xD2  # keys of the random generators


class LevelProbe(Frozen):
    """How well a small network predicts which level replayed an image, given its class.

    If all decoders distort alike, or not at all, `probe` is about `by_class`; if every decoder is
    recognisable by its distortions, it is 1.
    """

    probe: float
    """Accuracy on held-out replay with the noise of the classifier's training."""
    without_noise: float
    """The same for a second probe, trained and evaluated without noise."""
    standard_error: float
    """Of `probe`."""
    by_class: float
    """Accuracy of a guess among the levels of the class: what the class alone reveals."""
    guess: float
    """Accuracy of always predicting the same level."""
    levels: int
    """Levels compared; the buffer counts as one."""
    classes: int
    """Classes that occur in several levels; only these are used."""
    samples: int
    """Held-out samples."""


class LevelAccuracy(Frozen):
    """Accuracy of the global model for one level."""

    level: int | None
    """None is the buffer."""
    samples: int
    replay: float
    """Accuracy on the replay of this level, which is training data."""
    classes: int
    """Classes of which this level holds more samples than any other level."""
    test: float | None
    """Accuracy on the test images of those classes; None if there are none."""


class LevelGap(Frozen):
    """Accuracy per level. The symptom of the trap is a level with high `replay` and low `test`."""

    levels: tuple[LevelAccuracy, ...]
    gap: float | None
    """Highest minus lowest `test`; None unless two levels have one."""


class Trap(Frozen):
    """Both measures."""

    probe: LevelProbe | None
    """None if no class occurs in two levels."""
    gap: LevelGap


@dataclass(frozen=True)
class Drawn:
    """Replayed samples, drawn uniformly from each level: levels oldest first, then the buffer."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    level: NDArray[np.int64]
    """Position of the level that replayed the sample."""


def draw(now: Snapshot) -> Drawn:
    """The samples for both measures: up to 10,000, about equally many per level."""
    held = [level.indices for level in now.levels] + ([now.buffer.indices] if len(now.buffer) else [])
    generator = generator_for(now.settings.seed, _DRAW)
    most = _SAMPLES // max(len(held), 1)
    chosen = [
        indices[torch.randperm(len(indices), generator=generator)[:most].sort().values.numpy()]
        for indices in held
    ]
    x, y = now.fetch(np.concatenate([np.empty(0, np.int64), *chosen]))
    return Drawn(x.numpy(), y, np.repeat(np.arange(len(chosen)), [len(part) for part in chosen]))


def measure(
    now: Snapshot,
    network: nn.Module,
    test_x: NDArray[np.uint8],
    test_y: NDArray[np.int64],
    progress: Progress | None = None,
) -> Trap:
    """Both measures of a memory that holds samples, and of the classifier trained on it.

    test_y (n,): class numbers of the memory, the classifier's outputs; -1 for unknown classes.
    """
    drawn = draw(now)
    return Trap(probe=level_probe(now, drawn, progress), gap=level_gap(now, network, test_x, test_y, drawn))


def level_probe(
    now: Snapshot, drawn: Drawn | None = None, progress: Progress | None = None
) -> LevelProbe | None:
    """Is it visible which decoder an image came from? None if no class occurs in two levels.

    A network trained to predict the level of an image would recognise the class and predict the level that
    holds it, without using any distortion. So the class is given: only classes in several levels are used,
    the probe chooses among the levels of the image's class, and all pairs of class and level have equal
    weight. Then the class alone gives exactly `by_class` = classes / pairs. Other content reveals nothing if
    the samples of a class arrive in random order: those in one level and those in the next are then drawn
    from the same distribution. (If the appearance of a class changes over time, the probe sees that too.)
    What remains are traces of the decoder, of the number of generations and of the raw buffer: the trap.
    """
    drawn = drawn or draw(now)
    generator = generator_for(now.settings.seed, _PROBE)
    cells = _cells(drawn)
    if not cells:
        return None
    shuffled = [rows[torch.randperm(len(rows), generator=generator).numpy()] for rows in cells.values()]
    learned = [rows[: len(rows) // 2] for rows in shuffled]
    held_out = [rows[len(rows) // 2 :] for rows in shuffled]
    # Equally many rows per pair, small pairs repeated: a priori all levels of a class are equally likely.
    each = min(max(_SAMPLES // 2 // len(cells), 1), max(map(len, learned)))
    training = np.concatenate([np.resize(rows, each) for rows in learned])
    work = Work(generator, progress or Silent(), "probing levels")
    noise = now.settings.classifier.noise
    clean = _accuracies(drawn, list(cells), training, held_out, 0.0, work)
    noisy = _accuracies(drawn, list(cells), training, held_out, noise, work) if noise else clean
    variances = [p * (1 - p) / len(rows) for p, rows in zip(noisy, held_out, strict=True)]
    classes, levels = map(Counter, zip(*cells, strict=True))
    return LevelProbe(
        probe=float(np.mean(noisy)),
        without_noise=float(np.mean(clean)),
        standard_error=float(np.sqrt(np.sum(variances))) / len(cells),
        by_class=len(classes) / len(cells),
        guess=max(levels.values()) / len(cells),
        levels=len(levels),
        classes=len(classes),
        samples=sum(map(len, held_out)),
    )


def _cells(drawn: Drawn) -> dict[tuple[int, int], NDArray[np.intp]]:
    """Rows of each pair of class and level, for classes that occur in several levels."""
    rows = {
        (int(number), int(level)): np.flatnonzero((drawn.y == number) & (drawn.level == level))
        for level in np.unique(drawn.level)
        for number in np.unique(drawn.y[drawn.level == level])
    }
    rows = {cell: mine for cell, mine in rows.items() if len(mine) >= _LEAST}
    numbers = [number for number, _ in rows]
    return {cell: mine for cell, mine in rows.items() if numbers.count(cell[0]) > 1}


def _accuracies(
    drawn: Drawn,
    cells: list[tuple[int, int]],
    training: NDArray[np.intp],
    held_out: list[NDArray[np.intp]],
    noise: float,
    work: Work,
) -> list[float]:
    """Train a probe; returns its accuracy on the held-out rows of each cell, a pair of class and level."""
    levels = sorted({level for _, level in cells})
    level_of = torch.from_numpy(np.searchsorted(levels, drawn.level))
    possible = torch.zeros((int(drawn.y.max()) + 1, len(levels)), dtype=torch.bool)
    for number, level in cells:
        possible[number, levels.index(level)] = True
    device = choose_device()
    channels, *sides = drawn.x.shape[1:]
    top, left = (max(side - _SIDE, 0) // 2 for side in sides)
    centre = drawn.x[:, :, top : top + _SIDE, left : left + _SIDE]
    images, classes = torch.from_numpy(np.ascontiguousarray(centre)), torch.from_numpy(drawn.y)
    with seeded(work.generator):  # small and fast: distortions are local and of few kinds
        probe = nn.Sequential(
            nn.Conv2d(channels, 16, 5, stride=2, padding=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(16 * 32, len(levels)),
        ).to(device)

    def scores(rows: Tensor) -> Tensor:
        image = to_unit(images[rows].to(device))
        excluded = ~possible[classes[rows]].to(device)
        found: Tensor = probe(image + noise * torch.randn_like(image)).masked_fill(excluded, -torch.inf)
        return found

    def loss(batch: Tensor) -> Tensor:
        rows = torch.from_numpy(training)[batch]
        return nn.functional.cross_entropy(scores(rows), level_of[rows].to(device))

    fit(probe, loss, len(training), _RECIPE, work)
    tested = torch.from_numpy(np.concatenate(held_out))
    with torch.no_grad(), seeded(work.generator):
        blocks = tested.split(rows_at_once(images.shape[1:]))
        predicted = torch.cat([scores(rows).argmax(dim=1).cpu() for rows in blocks])
    right = (predicted == level_of[tested]).double()
    return [float(part.mean()) for part in right.split([len(rows) for rows in held_out])]


def level_gap(
    now: Snapshot,
    network: nn.Module,
    test_x: NDArray[np.uint8],
    test_y: NDArray[np.int64],
    drawn: Drawn | None = None,
) -> LevelGap:
    """Is the accuracy on classes of one level lower than on those of another? Arguments as in `measure`."""
    drawn = drawn or draw(now)
    held = [level.class_numbers() for level in now.levels] + ([now.buffer.y] if len(now.buffer) else [])
    counts = np.array([np.bincount(y, minlength=len(now.classes)) for y in held])
    home = np.where(counts.any(axis=0), counts.argmax(axis=0), -1)
    known = test_y >= 0
    mirrored = averages(now.settings.classifier)
    right = predict_classes(network, test_x[known], mirrored=mirrored) == test_y[known]
    home_of_test = home[test_y[known]]
    replayed = predict_classes(network, drawn.x, mirrored=mirrored) == drawn.y
    levels = tuple(
        LevelAccuracy(
            level=now.levels[k].slot.level if k < len(now.levels) else None,
            samples=len(y),
            replay=float(replayed[drawn.level == k].mean()),
            classes=int((home == k).sum()),
            test=float(right[mine].mean()) if (mine := home_of_test == k).any() else None,
        )
        for k, y in enumerate(held)
    )
    tested = [level.test for level in levels if level.test is not None]
    return LevelGap(levels=levels, gap=max(tested) - min(tested) if len(tested) > 1 else None)
