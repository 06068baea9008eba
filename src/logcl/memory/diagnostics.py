"""The trap of labels by distortion (the paper's section 4.3), measured.

Each level has a decoder of its own, and levels hold different classes. If images of one level have
distortions in common, the global model may learn "looks like level 3, so it is one of level 3's classes":
right on replay, useless on raw images. Two measures, one of the cause and one of the effect:

`level_probe`   can one see which decoder made an image?
`level_gap`     are classes of one level recognised worse than those of another, in spite of good replay?
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core.images import rows_at_once
from logcl.core.progress import Progress, Silent
from logcl.core.settings import Frozen, Recipe
from logcl.memory.snapshot import Snapshot
from logcl.nn.classification import predict_classes
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import Work, fit, generator_for, seeded

_SAMPLES = 10_000  # at most so many are replayed, however large the memory is
_LEAST = 8  # samples of one class in one level, below which they tell nothing
_SIDE = 32  # the probe looks at the middle of larger images: distortions are everywhere, time is not
_RECIPE = Recipe(epochs=4, min_steps=300, batch_size=64, learning_rate=3e-3)
_DRAW, _PROBE = 0xD1, 0xD2  # keys of randomness


class LevelProbe(Frozen):
    """How well a small network tells which level replayed an image, its class being known.

    If all decoders distort alike, or not at all, `probe` is about `by_class`; if every decoder can be told
    by its distortions it is 1.
    """

    probe: float
    """Accuracy on held-out replay with the noise that the classifier is trained with."""
    without_noise: float
    """The same of another probe that is trained and examined without noise."""
    standard_error: float
    """Of `probe`."""
    by_class: float
    """What the class alone tells: the accuracy of naming one of its levels."""
    guess: float
    """The accuracy of always naming the same level."""
    levels: int
    """Levels that were told apart; the buffer counts as one."""
    classes: int
    """Classes that lie in several levels: the only ones that can be asked about."""
    samples: int
    """Held-out samples."""


class LevelAccuracy(Frozen):
    """The global model on what one level stands for."""

    level: int | None
    """None is the buffer."""
    samples: int
    replay: float
    """Accuracy on what this level replays: training data."""
    classes: int
    """Classes of which this level holds more samples than any other does."""
    test: float | None
    """Accuracy on the test images of those classes; None if there are none."""


class LevelGap(Frozen):
    """Accuracy by level. The trap's signature is a level with high `replay` and low `test`."""

    levels: tuple[LevelAccuracy, ...]
    gap: float | None
    """`test` of the best level minus that of the worst; None unless two levels have one."""


class Trap(Frozen):
    """Both measures."""

    probe: LevelProbe | None
    """None if there is nothing to tell apart: no class lies in two levels."""
    gap: LevelGap


@dataclass(frozen=True)
class _Drawn:
    """Replayed samples, drawn evenly within each level, levels oldest first and the buffer last."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    level: NDArray[np.int64]
    """Position of the level that replayed the sample."""


def measure(
    now: Snapshot,
    network: nn.Module,
    test_x: NDArray[np.uint8],
    test_y: NDArray[np.int64],
    progress: Progress | None = None,
) -> Trap:
    """Both measures of a memory that holds samples and the classifier trained on it.

    test_y (n,): class numbers of the memory, the classifier's outputs; -1 for classes it does not know.
    """
    drawn = _draw(now)
    return Trap(
        probe=_level_probe(now, drawn, progress or Silent()),
        gap=_level_gap(now, drawn, network, test_x, test_y),
    )


def level_probe(now: Snapshot, progress: Progress | None = None) -> LevelProbe | None:
    """Can one see which decoder made an image?

    A network that is simply asked for the level of an image would read the class and name the level that
    holds it, without any distortion to go by. So the class is given away: only classes that lie in several
    levels are asked about, the probe chooses only among the levels of the image's class, and all pairs of
    class and level count alike. Then the class tells exactly `by_class` = classes / pairs. The rest of an
    image's content tells nothing as long as a class arrives in random order: its samples in one level and in
    the next are then two draws from the same images. (Where a class changes its looks over time, the probe
    sees that too.) What is left are traces of the decoder, of the number of re-encodings and of the raw
    buffer, in other words the trap. None if no class lies in two levels.
    """
    return _level_probe(now, _draw(now), progress or Silent())


def level_gap(
    now: Snapshot, network: nn.Module, test_x: NDArray[np.uint8], test_y: NDArray[np.int64]
) -> LevelGap:
    """Are classes of one level recognised worse than those of another? Arguments as in `measure`."""
    return _level_gap(now, _draw(now), network, test_x, test_y)


def _draw(now: Snapshot) -> _Drawn:
    held = [level.indices for level in now.levels] + ([now.buffer.indices] if len(now.buffer) else [])
    generator = generator_for(now.settings.seed, _DRAW)
    most = _SAMPLES // max(len(held), 1)
    chosen = [
        indices[torch.randperm(len(indices), generator=generator)[:most].sort().values.numpy()]
        for indices in held
    ]
    x, y = now.fetch(np.concatenate([np.empty(0, np.int64), *chosen]))
    return _Drawn(x.numpy(), y, np.repeat(np.arange(len(chosen)), [len(part) for part in chosen]))


def _level_probe(now: Snapshot, drawn: _Drawn, progress: Progress) -> LevelProbe | None:
    generator = generator_for(now.settings.seed, _PROBE)
    cells = _cells(drawn)
    if not cells:
        return None
    levels = sorted({level for _, level in cells})
    classes = {number for number, _ in cells}
    shuffled = [rows[torch.randperm(len(rows), generator=generator).numpy()] for rows in cells.values()]
    learned = [rows[: len(rows) // 2] for rows in shuffled]
    held_out = [rows[len(rows) // 2 :] for rows in shuffled]

    # As many rows of each pair, small ones repeated: without content to go by, all levels are as likely.
    each = min(max(_SAMPLES // 2 // len(cells), 1), max(map(len, learned)))
    learned = [np.resize(rows, each) for rows in learned]
    possible = torch.zeros((int(drawn.y.max()) + 1, len(levels)), dtype=torch.bool)
    for number, level in cells:
        possible[number, levels.index(level)] = True
    level_of = torch.from_numpy(np.searchsorted(levels, drawn.level))

    def accuracies(noise: float) -> list[float]:
        work = Work(generator, progress, "probing levels")
        right = _probe(
            drawn, np.concatenate(learned), np.concatenate(held_out), level_of, possible, noise, work
        )
        ends = np.cumsum([len(rows) for rows in held_out])[:-1]
        return [float(part.mean()) for part in np.split(right, ends)]

    noise = now.settings.classifier.noise
    clean = accuracies(0.0)
    noisy = accuracies(noise) if noise else clean
    variances = [p * (1 - p) / len(rows) for p, rows in zip(noisy, held_out, strict=True)]
    return LevelProbe(
        probe=float(np.mean(noisy)),
        without_noise=float(np.mean(clean)),
        standard_error=float(np.sqrt(np.sum(variances))) / len(cells),
        by_class=len(classes) / len(cells),
        guess=max(sum(level == other for _, other in cells) for level in levels) / len(cells),
        levels=len(levels),
        classes=len(classes),
        samples=sum(map(len, held_out)),
    )


def _cells(drawn: _Drawn) -> dict[tuple[int, int], NDArray[np.intp]]:
    """Rows of each pair of class and level, for classes that lie in several levels."""
    rows = {
        (int(number), int(level)): np.flatnonzero((drawn.y == number) & (drawn.level == level))
        for level in np.unique(drawn.level)
        for number in np.unique(drawn.y[drawn.level == level])
    }
    rows = {cell: mine for cell, mine in rows.items() if len(mine) >= _LEAST}
    numbers = [number for number, _ in rows]
    return {cell: mine for cell, mine in rows.items() if numbers.count(cell[0]) > 1}


def _probe(
    drawn: _Drawn,
    learned: NDArray[np.intp],
    held_out: NDArray[np.intp],
    level_of: Tensor,
    possible: Tensor,
    noise: float,
    work: Work,
) -> NDArray[np.bool_]:
    """Train on the rows `learned`; for each row `held_out`, whether its level is named.

    level_of (n,): the right answers. possible (classes, levels): which answers a class leaves open.
    """
    device = choose_device()
    middle = drawn.x[:, :, _middle(drawn.x.shape[2]), _middle(drawn.x.shape[3])]
    images, classes = torch.from_numpy(np.ascontiguousarray(middle)), torch.from_numpy(drawn.y)
    with seeded(work.generator):
        probe = _network(images.shape[1], possible.shape[1]).to(device)

    def scores(rows: Tensor) -> Tensor:
        image = to_unit(images[rows].to(device))
        closed = ~possible[classes[rows]].to(device)
        found: Tensor = probe(image + noise * torch.randn_like(image)).masked_fill(closed, -torch.inf)
        return found

    def loss(batch: Tensor) -> Tensor:
        rows = torch.from_numpy(learned)[batch]
        return nn.functional.cross_entropy(scores(rows), level_of[rows].to(device))

    fit(probe, loss, len(learned), _RECIPE, work)
    asked = torch.from_numpy(held_out)
    with torch.no_grad(), seeded(work.generator):
        blocks = asked.split(rows_at_once(images.shape[1:]))
        named = torch.cat([scores(rows).argmax(dim=1).cpu() for rows in blocks])
    right: NDArray[np.bool_] = (named == level_of[asked]).numpy()
    return right


def _network(channels: int, levels: int) -> nn.Module:
    """Images (n, C, H, W) → scores (n, levels). Small and quick: distortions are local and of few kinds."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, stride=2, padding=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * 32, levels),
    )


def _middle(side: int) -> slice:
    start = max(side - _SIDE, 0) // 2
    return slice(start, start + _SIDE)


def _level_gap(
    now: Snapshot,
    drawn: _Drawn,
    network: nn.Module,
    test_x: NDArray[np.uint8],
    test_y: NDArray[np.int64],
) -> LevelGap:
    held = [level.class_numbers() for level in now.levels] + ([now.buffer.y] if len(now.buffer) else [])
    counts = np.array([np.bincount(y, minlength=len(now.classes)) for y in held])
    home = np.where(counts.any(axis=0), counts.argmax(axis=0), -1)
    known = test_y >= 0
    right = predict_classes(network, test_x[known]) == test_y[known]
    home_of_test = home[test_y[known]]
    replayed = predict_classes(network, drawn.x) == drawn.y
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
