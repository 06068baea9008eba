"""The size of images as users write it: a side, height and width, or channels as well."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import NamedTuple

from logcl.core.errors import BadSettings
from logcl.core.settings import ImageShape

COLOUR = 3
"""Channels where nothing else decides."""


class ImageSize(NamedTuple):
    """Height and width, and channels unless the images decide."""

    channels: int | None
    height: int
    width: int

    def shape(self, channels: int = COLOUR) -> ImageShape:
        """Channels, height, width; `channels` if none were asked for."""
        return self.channels or channels, self.height, self.width

    def allows(self, shape: Sequence[int]) -> bool:
        """Whether images of this shape are what was asked for."""
        return self.shape(shape[0]) == tuple(shape)


AskedShape = int | str | Sequence[int] | ImageSize
"""64, "64", (64, 64), "64x64", (3, 64, 64) or "3x64x64"."""


def parse_size(asked: AskedShape, name: str = "image_shape =") -> ImageSize:
    """What a user asked for; `name` is what an error message calls the argument."""
    if isinstance(asked, ImageSize):
        return asked
    try:
        sides = _sides(asked)
    except (TypeError, ValueError) as error:
        raise BadSettings(
            f"{name} {str(asked)[:40]} is not a size of images; write e.g. 64, 64x64 or 3x64x64"
        ) from error
    return ImageSize(None, *(2 * sides)[:2]) if len(sides) < 3 else ImageSize(*sides)


def shape_text(shape: Sequence[int]) -> str:
    """3x64x64."""
    return "x".join(map(str, shape))


def _sides(asked: int | str | Sequence[int]) -> list[int]:
    if isinstance(asked, str):
        if not re.fullmatch("[1-9][0-9]{0,5}(x[1-9][0-9]{0,5}){0,2}", asked.lower(), re.ASCII):
            raise ValueError("not a size")
        return [int(side) for side in asked.lower().split("x")]
    sides = [*map(operator.index, asked)] if hasattr(asked, "__iter__") else [operator.index(asked)]
    if not 1 <= len(sides) <= 3 or min(sides) < 1:
        raise ValueError("not a size")
    return sides
