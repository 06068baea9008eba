"""What an experiment measures: accuracy, forgetting, confusion, reconstruction errors, examples."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from logcl.core.images import squared_errors
from logcl.experiments.result import ERROR_BINS, Examples, GenerationError, Row
from logcl.methods import Replayed
from logcl.streams import Stream

_EXAMPLES = 5  # per level and generation


def accuracy_by_task(stream: Stream, predicted: NDArray[np.int64]) -> tuple[float | None, ...]:
    """Accuracy on the test samples of each task's classes; None for a task without test samples."""
    right = predicted == stream.test_y
    of_task = [np.isin(stream.test_y, classes) for classes in stream.task_classes]
    return tuple(float(right[mine].mean()) if mine.any() else None for mine in of_task)


def accuracy_so_far(stream: Stream, tasks: int, predicted: NDArray[np.int64]) -> float | None:
    """Accuracy on the test samples of all classes in the first `tasks` tasks; None if there are none."""
    seen = np.isin(stream.test_y, np.concatenate(stream.task_classes[:tasks]))
    return float((predicted == stream.test_y)[seen].mean()) if seen.any() else None


def forgetting(matrix: Sequence[Row]) -> float | None:
    """As in Chaudhry et al. 2018, counted from the task itself on; None for a single task."""
    losses = []
    for task in range(len(matrix) - 1):
        history = [row[task] for row in matrix[task:] if row is not None]
        if None not in history:
            values = np.array(history, dtype=np.float64)
            losses.append(float(values[:-1].max() - values[-1]))
    return float(np.mean(losses)) if losses else None


def confusion(true: NDArray[np.int64], predicted: NDArray[np.int64]) -> tuple[tuple[int, int, int], ...]:
    """(true class, predicted class, samples) for pairs that occur."""
    pairs, counts = np.unique(np.stack([true, predicted]), axis=1, return_counts=True)
    return tuple((int(t), int(p), int(c)) for t, p, c in zip(*pairs, counts, strict=True))


def reconstruction(stream: Stream, replayed: Replayed) -> tuple[GenerationError, ...]:
    """Replay against the originals, which only an experiment still has, by generation."""
    errors = squared_errors(_originals(stream, replayed.arrival), replayed.x)
    found = {int(g): errors[replayed.generations == g] for g in np.unique(replayed.generations)}
    return tuple(
        GenerationError(
            generation=generation,
            samples=len(mine),
            mse=float(mine.mean()),
            histogram=tuple(np.histogram(mine.clip(ERROR_BINS[0], ERROR_BINS[-1]), ERROR_BINS)[0].tolist()),
        )
        for generation, mine in found.items()
    )


def examples(stream: Stream, replayed: Replayed) -> tuple[Examples, ...]:
    """A few evenly spaced samples of each level and generation, with their originals."""
    found = []
    for level, generation in np.unique([replayed.levels, replayed.generations], axis=1).T.tolist():
        mine = np.flatnonzero((replayed.levels == level) & (replayed.generations == generation))
        some = mine[np.linspace(0, len(mine) - 1, min(_EXAMPLES, len(mine))).astype(int)]
        found.append(
            Examples(
                level=level,
                generation=generation,
                arrival=tuple((replayed.arrival[some] + 1).tolist()),
                originals=_png(_originals(stream, replayed.arrival[some])),
                replayed=_png(replayed.x[some]),
            )
        )
    return tuple(found)


def _originals(stream: Stream, arrival: NDArray[np.int64]) -> NDArray[np.uint8]:
    return stream.source_x[np.concatenate(stream.members)[arrival]]


def _png(images: NDArray[np.uint8]) -> str:
    """(n, C, H, W) side by side, as a PNG in base64; the mean of channels unless there are 1 or 3."""
    if images.shape[1] not in (1, 3):
        images = images.mean(axis=1, keepdims=True).astype(np.uint8)
    strip = np.concatenate(list(images.transpose(0, 2, 3, 1)), axis=1)
    stream = io.BytesIO()
    Image.fromarray(strip[:, :, 0] if strip.shape[2] == 1 else strip).save(stream, "png", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()
