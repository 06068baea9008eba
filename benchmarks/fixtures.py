"""Small memories of the present format, and what they replay: kept in tests/fixtures when a format is new.

python benchmarks/fixtures.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from logcl import Classifier, Memory
from logcl.storage import FORMAT
from logcl.streams import open_stream

NAMES = np.array(["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"])
QUICK = {
    "generator.epochs": 2, "generator.min_steps": 60,
    "classifier.epochs": 1, "classifier.min_steps": 30, "classifier.width": 4,
}  # fmt: skip


def main(folder: Path) -> None:
    """A memory of each preset that runs on a CPU: two levels, a buffer, a classifier."""
    task = next(iter(open_stream("digits", tasks=1)))
    labels = NAMES[task.y]
    for preset in ("fast", "paper-cpu"):
        path = folder / f"format-{FORMAT}-{preset}.logcl"
        memory = Memory.open(path, (1, 8, 8), preset=preset, unit=16, settings=QUICK)
        for start, stop in ((0, 40), (40, 90)):
            memory.absorb(task.x[start:stop], labels[start:stop])
        Classifier.train(memory)
        x, y = memory.snapshot().everything()
        np.savez_compressed(path.with_suffix(".npz"), x=x.numpy(), y=np.array(memory.classes)[y])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
