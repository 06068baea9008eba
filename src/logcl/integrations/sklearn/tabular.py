"""Plain tables in a memory that is made for images: a row is an image, a column is a pixel.

What a pixel stands for is learnt from the first task and fixed then, because that is how everything later
must be read. So the scale has to bear columns of any range, and later tasks far away from the first.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl.core.settings import Frozen, ImageShape
from logcl.memory.settings import Settings, override

REACH = 100
"""Values further from the centre of their column than so many spreads are clipped."""
_STRETCH = 2 * math.asinh(REACH)  # from pixels in [0, 1] back to asinh(spreads)
_WIDEST = 4096  # columns of an image
_LARGEST = 1e300  # the difference of two is still a number

# The cosine transform has nothing to train, whatever the columns are, and merges levels without loss.
_CODES = {"unit": 128, "generator.network": "cosine", "generator.psnr": 40}
_CLASSIFIER = {
    "network": "mlp", "width": 16, "epochs": 20, "min_steps": 200, "learning_rate": 1e-2, "noise": 0.02,
    "mirror": False, "shift": 0,
}  # fmt: skip


class Scale(Frozen):
    """How the columns of a table become pixels: finely near the centre, ever more coarsely away from it."""

    centre: tuple[float, ...]
    spread: tuple[Annotated[float, Field(gt=0)], ...]

    @staticmethod
    def learnt(table: NDArray[np.float64]) -> Scale:
        """From the first task (n, columns): the medians, and how far other values usually are from them."""
        table = np.clip(table, -_LARGEST, _LARGEST)
        centre = np.median(table, axis=0)
        # Only values that differ count, as most of a column may be zeros.
        apart = [column[column > 0] for column in np.abs(table - centre).T]
        spread = [
            # 1.4826 makes it the standard deviation of a normal distribution. A column with one value says
            # nothing of others: they are taken to be of its size.
            1.4826 * float(np.median(column)) if len(column) else max(abs(float(value)), 1.0)
            for column, value in zip(apart, centre, strict=True)
        ]
        return Scale(centre=tuple(centre.tolist()), spread=tuple(spread))

    def images(self, table: NDArray[np.float64], shape: ImageShape) -> NDArray[np.float64]:
        """A table (n, columns) as images (n, 1, H, W) in [0, 1]; pixels that stand for nothing are grey."""
        pixels = np.clip(0.5 + np.arcsinh(self._spreads(table)) / _STRETCH, 0, 1)
        missing = math.prod(shape) - len(self.centre)
        return np.pad(pixels, ((0, 0), (0, missing)), constant_values=0.5).reshape(-1, *shape)

    def clipped(self, table: NDArray[np.float64]) -> int:
        """How many values are out of reach."""
        return int((np.abs(self._spreads(table)) > REACH).sum())

    def _spreads(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            away: NDArray[np.float64] = (table - np.array(self.centre)) / np.array(self.spread)
        return away


class TableNetwork(nn.Module):
    """The global model of a table: two hidden layers that see columns in spreads instead of pixels.

    A column of usual values takes a tenth of the range of a pixel, and networks learn slowly from that.
    """

    def __init__(self, image_shape: ImageShape, width: int, classes: int) -> None:
        super().__init__()
        hidden = 8 * width
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(image_shape), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, image: Tensor) -> Tensor:
        """(n, 1, H, W) in [0, 1] → (n, classes)."""
        scores: Tensor = self.layers((image - 0.5) * _STRETCH)
        return scores


def table_shape(columns: int) -> ImageShape:
    """The image that a row becomes: flat if it can be, and of two pixels at least."""
    rows = -(-columns // _WIDEST)
    return 1, rows, max(-(-columns // rows), 2)


def table_settings(settings: Settings) -> Settings:
    """The settings of a preset, as tables need them."""
    changes: dict[str, Any] = {f"classifier.{name}": value for name, value in _CLASSIFIER.items()}
    if settings.generator.codes == "quantised":
        changes |= _CODES
    return override(settings, changes)
