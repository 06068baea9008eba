"""`logcl predict`: classify images with the global model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logcl.cli.console import JsonOption, MemoryArgument, err, job, print_json
from logcl.core.text import printable


def predict(
    path: MemoryArgument,
    images: Annotated[list[Path], typer.Argument(help="Image files, folders of images, .npz files with x.")],
    as_json: JsonOption = False,
) -> None:
    """Classify images with the global model."""
    import numpy as np

    from logcl.memory.classifier import Classifier
    from logcl.memory.memory import Memory
    from logcl.streams import read_npz_images
    from logcl.streams.images import list_all_images, read_image

    memory = Memory.open(path)
    classifier = Classifier.load(memory)
    if not classifier.is_current(memory):
        err.print(
            f"note: {path} has grown from {classifier.about.samples:,} to {memory.n:,} samples since its "
            f"classifier was trained; `logcl train {path}` brings it up to date",
        )
    names: list[str] = []
    arrays = []
    files = [file for image in images for file in (list_all_images(image) if image.is_dir() else [image])]
    with job("nothing was changed") as progress, progress.track("reading images", len(files)) as advance:
        for file in files:
            if file.suffix.lower() == ".npz":
                x = read_npz_images(file)
                names += [f"{file}[{row}]" for row in range(len(x))]
            else:
                x = read_image(file, classifier.image_shape)[None]
                names.append(str(file))
            arrays.append(x)
            advance()
    probabilities = np.concatenate([classifier.predict_proba(array) for array in arrays])
    rows = [
        {"image": name, "label": classifier.classes[int(row.argmax())], "probability": float(row.max())}
        for name, row in zip(names, probabilities, strict=True)
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        # rich would expand the tabs
        print(f"{printable(row['image'])}\t{printable(row['label'])}\t{row['probability']:.3f}")
