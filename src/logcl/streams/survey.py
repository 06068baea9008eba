"""What image files are, by their headers, and the size that suits them: decided before any pixel is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from logcl.core.errors import DataError
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageFit, ImageShape
from logcl.core.sizes import ImageSize, shape_text
from logcl.core.text import human_bytes
from logcl.streams.pixels import read_header

LARGEST_KEPT = 64
"""Images of one common size keep it up to this side."""
TINY, SMALL, USUAL = 8, 32, 64
"""Sides that are chosen for others. Twice the side takes three times the bytes, four times the training."""
_SAME = 0.99  # of an image that must be kept for it to count as whole


@dataclass(frozen=True, eq=False)
class Survey:
    """The headers of image files that can be read."""

    paths: tuple[Path, ...]
    sizes: NDArray[np.int64]
    """(n, 2): height and width of each image when upright."""
    grey: NDArray[np.bool_]
    """(n,): which images have no colours."""
    unreadable: int = 0

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def classes(self) -> int:
        """Distinct names of the folders that the images are in."""
        return len({path.parent.name for path in self.paths})

    @property
    def channels(self) -> int:
        """1 if all images are grey, else 3."""
        return 1 if self.grey.all() else 3

    @property
    def common_size(self) -> tuple[int, int] | None:
        """Height and width, if all images have the same."""
        first = self.sizes[:1]
        return (int(first[0, 0]), int(first[0, 1])) if (self.sizes == first).all() and len(first) else None

    @property
    def shorter_side(self) -> int:
        """The median over images."""
        return int(np.median(self.sizes.min(axis=1)))

    def image_shape(self, asked: ImageSize | None = None) -> ImageShape:
        """The shape that suits these images, as far as it was not asked for.

        Their common size if no side exceeds 64. Else a square of 64 or 32 pixels, the largest that is at most
        the shorter side of most images, or of that side if it is below 32.
        """
        if asked is not None:
            return asked.shape(self.channels)
        if not len(self):
            return self.channels, SMALL, SMALL
        common = self.common_size
        if common is not None and max(common) <= LARGEST_KEPT:
            return (self.channels, *common)
        side = USUAL if self.shorter_side >= USUAL else max(min(self.shorter_side, SMALL), TINY)
        return self.channels, side, side

    def kept(self, shape: ImageShape) -> NDArray[np.float64]:
        """(n,): the part of each image that a crop to this shape's aspect ratio keeps."""
        ratio = self.sizes[:, 1] / self.sizes[:, 0] * shape[1] / shape[2]
        return np.minimum(ratio, 1 / ratio)

    def enlarged(self, shape: ImageShape, fit: ImageFit) -> int:
        """Images that become larger, which adds bytes and no detail."""
        factors = np.array(shape[1:]) / self.sizes
        return int(((factors.min(axis=1) if fit == "pad" else factors.max(axis=1)) > 1).sum())


def survey(paths: Sequence[Path], *, skip_bad: bool = False, progress: Progress | None = None) -> Survey:
    """Read the headers of image files; with `skip_bad`, files that cannot be read are only counted."""
    good, sizes, grey = [], [], []
    with (progress or Silent()).track("looking at images", len(paths)) as advance:
        for path in paths:
            try:
                is_grey, size = read_header(path)
            except DataError:
                if not skip_bad:
                    raise
            else:
                good.append(path)
                sizes.append(size)
                grey.append(is_grey)
            advance()
    found = np.array(sizes, np.int64).reshape(-1, 2)
    return Survey(tuple(good), found, np.array(grey, bool), len(paths) - len(good))


def findings(
    found: Survey, asked: ImageSize | None, fit: ImageFit, by: str = "as asked"
) -> list[tuple[str, str, str]]:
    """Rows of a table: what, what was found, and what was chosen and why; `by`: why a size was asked for."""
    shape = found.image_shape(asked)
    count = f"{len(found):,} in {_plural(found.classes, 'class', 'classes')}"
    bad = f"; {found.unreadable:,} cannot be read" if found.unreadable else ""
    size = human_bytes(sum(path.stat().st_size for path in found.paths))
    return [
        ("images", f"{count}, {size}{bad}", f"all{' that can be read' if bad else ''}"),
        ("height x width", _sizes(found), f"{shape[1]}x{shape[2]}, {_why(found, asked, shape, by)}"),
        ("aspect ratio", _ratios(found), _what_fit_does(found, shape, fit)),
        (
            "colour",
            _colours(found),
            f"{_plural(shape[0], 'channel')}{_channels_why(found, asked, shape, by)}",
        ),
    ]


def advice(found: Survey, asked: ImageSize | None, fit: ImageFit) -> list[str]:
    """Sentences about what a user may not want."""
    shape = found.image_shape(asked)
    some = found.kept(shape)
    lost = int((some < 0.5).sum())
    said = []
    if fit == "crop" and lost:
        said.append(
            f"{lost:,} of {_plural(len(found), 'image')} would lose more than half to the crop; --fit pad "
            "keeps all of each image"
        )
    if asked is None and found.shorter_side > 2 * max(shape[1:]):
        said.append("`logcl preview` on the same folder shows what other sizes would cost and look like")
    return said


def _sizes(found: Survey) -> str:
    if found.common_size is not None:
        return f"all {shape_text(found.common_size)}"
    areas = found.sizes.prod(axis=1)
    low, high = found.sizes[areas.argmin()], found.sizes[areas.argmax()]
    return f"{shape_text(low)} to {shape_text(high)}, shorter side typically {found.shorter_side}"


def _why(found: Survey, asked: ImageSize | None, shape: ImageShape, by: str) -> str:
    if asked is not None:
        return by
    if found.common_size == shape[1:]:
        return "as they are"
    size = {USUAL: "the usual size of photographs", SMALL: "as most are smaller than 64 pixels"}.get(shape[1])
    return f"{size or 'the shorter side of most'}; --image-shape chooses another"


def _ratios(found: Survey) -> str:
    ratios = found.sizes[:, 1] / found.sizes[:, 0]
    low, high = f"{ratios.min():.2f}", f"{ratios.max():.2f}"
    return f"width / height {low}" + ("" if low == high else f" to {high}")


def _what_fit_does(found: Survey, shape: ImageShape, fit: ImageFit) -> str:
    other = found.kept(shape) < _SAME
    done = {"crop": "cropped to the middle", "pad": "padded", "stretch": "stretched"}[fit]
    text = "kept"
    if count := int(other.sum()):
        text = f"{fit}: {'all' if count == len(found) else f'{count:,}'} {done}"
        if fit == "crop":
            text += f", {found.kept(shape)[other].mean():.0%} of each kept on average"
    larger = found.enlarged(shape, fit)
    return text + (f"; {larger:,} enlarged" if larger else "")


def _colours(found: Survey) -> str:
    grey, every = int(found.grey.sum()), len(found)
    return (
        "all grey" if grey == every else f"{every - grey:,} colour, {grey:,} grey" if grey else "all colour"
    )


def _channels_why(found: Survey, asked: ImageSize | None, shape: ImageShape, by: str) -> str:
    if asked is not None and asked.channels:
        return f", {by}"
    return "; grey images stay grey" if shape[0] > 1 and found.grey.any() else ""


def _plural(count: int, word: str, words: str = "") -> str:
    return f"{count:,} {word if count == 1 else words or f'{word}s'}"
