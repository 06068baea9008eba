"""`logcl predict`: classify images with the global model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logcl.cli import console
from logcl.core.text import printable


def predict(
    path: console.MemoryArgument,
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES…", help="Image files, folders of images, or .npz files with x."),
    ],
    as_json: console.JsonOption = False,
) -> None:
    """Classify images with the global model."""
    from logcl.memory.classifier import Classifier
    from logcl.memory.memory import Memory
    from logcl.streams import read_images

    memory = Memory.open(path)
    classifier = Classifier.load(memory)
    if not classifier.is_current(memory):
        console.err.print(
            f"note: {path} has grown from {classifier.about.samples:,} to {memory.n:,} samples since its "
            f"classifier was trained; update it with `logcl train {path}`",
        )
    rows = []
    with console.job("nothing was changed") as progress:
        for names, x in read_images(images, classifier.image_shape, progress, fit=memory.settings.fit):
            for name, probabilities in zip(names, classifier.predict_proba(x), strict=True):
                label = classifier.classes[int(probabilities.argmax())]
                rows.append({"image": name, "label": label, "probability": float(probabilities.max())})
    if as_json:
        console.print_json(rows)
        return
    for row in rows:
        # not `out.print`: rich expands tabs
        print(f"{printable(row['image'])}\t{printable(row['label'])}\t{row['probability']:.3f}")
