"""Draws docs/figures/photographs.png: photographs, and what memories of them give back, with their bytes.

    python tools/photographs_figure.py FOLDER    (class-named folders; here the clothing test set)

Bytes are those of the whole file, divided by the photographs in it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from logcl import Memory
from logcl.memory.featured import pictures
from logcl.nn.backbones import BUILT_IN
from logcl.streams import Task, read_tasks

OUT = Path(__file__).parent.parent / "docs" / "figures" / "photographs.png"
SIDE, SHOWN = 112, 8  # pixels of a photograph in the figure; how many


def some(task: Task) -> list[int]:
    """Rows of a photograph of each of the first classes."""
    return [int(np.flatnonzero(task.y == label)[1]) for label in np.unique(task.y)[:SHOWN]]


def shown(folder: Path, where: Path, name: str, **how: object) -> tuple[list[np.ndarray], float]:
    """What a memory of the photographs replays of some of them, and its bytes per photograph."""
    memory = Memory.open(where / f"{name}.logcl", **how)
    (task,) = read_tasks(folder, memory.settings.input_shape, fit=memory.settings.fit)
    done, arrived = memory.absorb(task.x, task.y), np.arange(len(task))
    for slot, order in done.orders.items():  # codecs may reorder the samples of a task
        arrived[slot.start - 1 : slot.stop] = arrived[slot.start - 1 : slot.stop][order]
    now, rows = memory.snapshot(), np.argsort(arrived)[some(task)]
    found = pictures(now.fetch(now.live[rows])[0], now.settings)
    assert found is not None
    return [image.transpose(1, 2, 0) for image in found.numpy()], memory.nbytes() / memory.n


def main() -> None:
    folder = Path(sys.argv[1])
    (task,) = read_tasks(folder, (3, SIDE, SIDE))
    first = some(task)
    rows = [("photographs", [task.x[row].transpose(1, 2, 0) for row in first])]
    with tempfile.TemporaryDirectory() as place:
        for side in (128, 64):
            images, size = shown(folder, Path(place), f"at-{side}", image_shape=side)
            rows.append((f"{side} pixels\n{size:,.0f} bytes each", images))
        images, size = shown(folder, Path(place), "features", backbone=BUILT_IN, thumbnails=32)
        rows.append((f"features and\na thumbnail\n{size:,.0f} bytes each", images))
    figure, axes = plt.subplots(len(rows), len(first), figsize=(len(first) * 0.95 + 1.3, len(rows) * 0.98))
    for line, (title, images) in zip(axes, rows, strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(np.asarray(Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BICUBIC)))
            axis.axis("off")
        line[0].text(-0.12, 0.5, title, transform=line[0].transAxes, ha="right", va="center", fontsize=8)
    figure.subplots_adjust(
        left=1.25 / figure.get_figwidth(), right=0.999, bottom=0.002, top=0.998, wspace=0.04, hspace=0.04
    )
    figure.savefig(OUT, dpi=SIDE)
    Image.open(OUT).convert("RGB").quantize(192, dither=Image.Dither.FLOYDSTEINBERG).save(OUT, optimize=True)
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
