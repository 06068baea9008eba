"""The image sets that codecs are measured on: a fixed sample of images, at a fixed size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from logcl.core.errors import DataError
from logcl.core.pictures import from_picture, to_picture
from logcl.core.progress import Progress
from logcl.core.settings import ImageShape
from logcl.core.text import printable
from logcl.streams import CATALOG, Pixels, open_stream, read_npz_images
from logcl.streams.images import list_images, task_folders
from logcl.streams.pixels import check_image_shape, read_header, read_image
from logcl.streams.stream import Rows

_CLOTHING = "clothing"
SIDES = (32, 64, 128, 224)
"""Sizes of photographs, in pixels."""


@dataclass(frozen=True)
class ImageSet:
    """Images of one source, cropped to the shape's aspect ratio around their centre, then resized."""

    name: str
    source: str
    """A named data set, `clothing`, or the path of a folder or an `.npz` file."""
    shape: ImageShape

    def load(self, count: int, data_dir: Path | None, progress: Progress) -> Pixels:
        """At most `count` images (n, C, H, W), always the same; a DataError if they are missing."""
        return np.stack([_resized(image, self.shape) for image in self._read(count, data_dir, progress)])

    def _read(self, count: int, data_dir: Path | None, progress: Progress) -> Iterator[Pixels]:
        """The images one by one, in their own size."""
        if self.source in CATALOG:
            stream = open_stream(CATALOG[self.source], data_dir=data_dir, progress=progress)
            rows = np.concatenate(stream.members)
            yield from stream.source_x[rows[_some(len(rows), count)]]
        elif self.source.lower().endswith(".npz"):
            x = read_npz_images(Path(self.source))
            yield from x[_some(len(x), count)]
        else:
            parts = _held_out(data_dir) if self.source == _CLOTHING else task_folders(Path(self.source))
            paths = [path for part in parts for path in list_images(part)]
            chosen = _some(len(paths), count)
            with progress.track(f"reading {self.name}", len(chosen)) as advance:
                for row in chosen:
                    yield read_image(paths[row], (self.shape[0], *read_header(paths[row])[1]))
                    advance()


def _some(size: int, count: int) -> Rows:
    return np.sort(np.random.default_rng(0).permutation(size)[:count])


def _held_out(data_dir: Path | None) -> list[Path]:
    """Photographs that no network was trained on: `pyramid` comes with networks of the training folder."""
    root = data_dir or os.environ.get("LOGCL_DATA")
    folder = Path(root or ".").expanduser() / _CLOTHING
    if root is None or not folder.is_dir():
        raise DataError(
            f"the clothing photographs are missing{f' in {root}' if root else ''}; get them from "
            "github.com/alexeygrigorev/clothing-dataset-small and set LOGCL_DATA or --data-dir to the folder "
            f"that contains {_CLOTHING}/"
        )
    return [folder / part for part in ("test", "validation") if (folder / part).is_dir()]


def _resized(image: Pixels, shape: ImageShape) -> Pixels:
    if image.shape == shape:
        return image
    channels, height, width = shape
    picture = to_picture(image).convert("L" if channels == 1 else "RGB")
    return from_picture(ImageOps.fit(picture, (width, height), Image.Resampling.LANCZOS))


IMAGE_SETS = {
    known.name: known
    for known in (
        ImageSet("mnist", "mnist", (1, 28, 28)),
        ImageSet("omniglot", "omniglot", (1, 28, 28)),
        ImageSet("cifar100-grey", "cifar100", (1, 28, 28)),
        ImageSet("clothing-grey", _CLOTHING, (1, 28, 28)),
        ImageSet("cifar100", "cifar100", (3, 32, 32)),
        *(ImageSet(f"clothing-{side}", _CLOTHING, (3, side, side)) for side in SIDES),
    )
}


def from_source(source: str, shapes: Sequence[ImageShape]) -> dict[str, ImageSet]:
    """Sets of a user's own images: one per shape, else the shape of an `.npz`, or `SIDES` in colour."""
    path = Path(source).expanduser().resolve()
    if not shapes and path.suffix.lower() == ".npz":
        channels, height, width = read_npz_images(path).shape[1:]
        shapes = [(channels, height, width)]
    shapes = shapes or [(3, side, side) for side in SIDES]
    sets = {}
    for shape in shapes:
        check_image_shape(shape)
        name = f"{printable(path.stem)}-{'x'.join(map(str, shape))}"
        sets[name] = ImageSet(name, str(path), shape)
    return sets
