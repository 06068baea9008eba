"""A few images of a source, for measurements, and how many it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from logcl.core.errors import DataError
from logcl.core.pictures import Pixels, to_picture
from logcl.core.progress import Progress
from logcl.core.settings import ImageFit, ImageShape
from logcl.core.sizes import ImageSize
from logcl.streams import Named, Survey, open_stream, read_npz, resolve, survey_of
from logcl.streams.pixels import read_header, read_image

SIDES = (32, 64, 128, 224)
"""Sides of photographs that are compared."""
PHOTOGRAPHS = 64
"""Images are usually of at least this side if they are photographs."""
_SOME = 64
_SHOWN_SIDE = 256  # of originals on the page


@dataclass(frozen=True, eq=False)
class Source:
    """Images that can be read at any size, or arrays, which have one."""

    name: str
    total: int
    """Images of the source, which are more than those below."""
    classes: int
    """Of the source."""
    labels: tuple[str, ...]
    """(n,), of the images for measurements."""
    originals: tuple[Image.Image, ...]
    """(n,), upright in their own aspect ratio, for people to look at."""
    read: Callable[[ImageShape, ImageFit], Pixels]
    """The images for measurements (n, C, H, W)."""
    usual: ImageShape
    """The shape that would be chosen for the source."""
    shapes: tuple[ImageShape, ...]
    """Shapes that make sense, from the smallest."""
    survey: Survey | None = None

    def __len__(self) -> int:
        return len(self.labels)


def look(source: str, sizes: list[ImageSize], *, data_dir: Path | None = None, progress: Progress) -> Source:
    """Choose images from all over a source. Files that cannot be read are left out.

    sizes: those to compare; if there are none, those that make sense for the images.
    """
    found = resolve(source)
    survey = survey_of(found, skip_bad=True, progress=progress)
    if survey is not None:
        return _of_files(source, survey, sizes, progress)
    if isinstance(found, Named):
        stream = open_stream(found, data_dir=data_dir, progress=progress)
        rows = np.concatenate(stream.members)
        x, y = stream.source_x, np.array(stream.classes)[stream.source_y]
    else:
        x, y = read_npz(found)
        rows = np.arange(len(y))
    some = rows[_spread(len(rows))]
    channels, height, width = x.shape[1:]
    shape = channels, height, width
    chosen = np.ascontiguousarray(x[some])
    if any(not size.allows(shape) for size in sizes):
        raise DataError(f"the images of {source} have shape {shape} and are not resized; leave out the size")
    shown = tuple(to_picture(image) if channels in (1, 3) else to_picture(image[:1]) for image in chosen)
    labels = tuple(map(str, y[some]))
    return Source(source, len(rows), len(np.unique(y)), labels, shown, lambda *_: chosen, shape, (shape,))


def _of_files(source: str, survey: Survey, sizes: list[ImageSize], progress: Progress) -> Source:
    if not len(survey):
        raise DataError(f"none of the images of {source} can be read; replace them")
    rows = _spread(len(survey))
    paths, originals = [], []
    with progress.track("reading originals", len(rows)) as advance:
        for row in rows:
            path = survey.paths[row]
            try:
                originals.append(_original(path))
            except DataError:
                advance()
                continue
            paths.append(path)
            advance()
    if not paths:
        raise DataError(f"none of the images of {source} can be read; replace them")

    def read(shape: ImageShape, fit: ImageFit) -> Pixels:
        return np.stack([read_image(path, shape, fit) for path in paths])

    labels = tuple(path.parent.name for path in paths)
    shapes = tuple(size.shape(survey.channels) for size in sizes) or _sensible(survey)
    usual = survey.image_shape()
    return Source(source, len(survey), survey.classes, labels, tuple(originals), read, usual, shapes, survey)


def _sensible(survey: Survey) -> tuple[ImageShape, ...]:
    """The usual sides up to that of most images, and the size of all images if they share one."""
    usual, common = survey.image_shape(), survey.common_size
    if common == usual[1:]:
        return (usual,)
    sides = [(side, side) for side in SIDES if side <= survey.shorter_side] or [usual[1:]]
    if common is not None and max(common) <= SIDES[-1]:
        sides.append(common)
    return tuple((survey.channels, *side) for side in sorted(set(sides), key=lambda side: side[0] * side[1]))


def _spread(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows from all over `count`, evenly spaced: of files sorted by class, some of most classes."""
    return np.unique(np.linspace(0, count - 1, min(_SOME, count)).round().astype(np.int64))


def _original(path: Path) -> Image.Image:
    """An image small enough for a page, in its own aspect ratio."""
    grey, (height, width) = read_header(path)
    scale = min(_SHOWN_SIDE / max(height, width), 1)
    shape = 1 if grey else 3, max(round(height * scale), 1), max(round(width * scale), 1)
    return to_picture(read_image(path, shape, "stretch"))
