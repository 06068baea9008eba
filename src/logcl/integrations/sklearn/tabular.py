"""Tables in a memory made for images: each row is an image, each column a pixel.

The scale of each column is learnt from the first task and then fixed, because stored pixels are meaningless
without it. So it has to cope with columns of any range, and with later tasks far away from the first.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl.codecs.base import RateSettings
from logcl.core.settings import Frozen, ImageShape
from logcl.memory.settings import Settings, override

MAX_SPREADS = 100
"""Values further than this from the centre of their column, in spreads, are clipped."""
_STRETCH = 2 * math.asinh(MAX_SPREADS)  # from pixels in [0, 1] back to asinh(spreads)
_MAX_WIDTH = 4096  # of an image, in pixels
_LARGEST = 1e300  # the difference of two such values is still finite

# The cosine transform needs no training, whatever the columns are, and merges levels without loss.
_CODES = {"unit": 128, "codec.name": "cosine", "codec.psnr": 40}
_CLASSIFIER = {
    "network": "mlp", "width": 16, "epochs": 20, "min_steps": 200, "learning_rate": 1e-2, "noise": 0.02,
    "mirror": False, "shift": 0,
}  # fmt: skip


class ColumnScale(Frozen):
    """How columns become pixels: asinh((x - centre) / spread), which resolves less far from the centre."""

    centre: tuple[float, ...]
    spread: tuple[Annotated[float, Field(gt=0)], ...]

    @staticmethod
    def fit(table: NDArray[np.float64]) -> ColumnScale:
        """From the first task (n, columns): the median of each column and a robust standard deviation."""
        table = np.clip(table, -_LARGEST, _LARGEST)
        centre = np.median(table, axis=0)
        # Values equal to the median are left out: most of a column may be zeros.
        distances = [column[column > 0] for column in np.abs(table - centre).T]
        spread = [
            # 1.4826 times the median distance is the standard deviation if the column is normal. A constant
            # column says nothing about other values; they are assumed to be of the same magnitude.
            1.4826 * float(np.median(column)) if len(column) else max(abs(float(value)), 1.0)
            for column, value in zip(distances, centre, strict=True)
        ]
        return ColumnScale(centre=tuple(centre.tolist()), spread=tuple(spread))

    def images(self, table: NDArray[np.float64], shape: ImageShape) -> NDArray[np.float64]:
        """A table (n, columns) as images (n, 1, H, W) in [0, 1]; unused pixels are grey."""
        pixels = np.clip(0.5 + np.arcsinh(self._spreads(table)) / _STRETCH, 0, 1)
        missing = math.prod(shape) - len(self.centre)
        return np.pad(pixels, ((0, 0), (0, missing)), constant_values=0.5).reshape(-1, *shape)

    def count_clipped(self, table: NDArray[np.float64]) -> int:
        """Number of values beyond `MAX_SPREADS`."""
        return int((np.abs(self._spreads(table)) > MAX_SPREADS).sum())

    def _spreads(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            spreads: NDArray[np.float64] = (table - np.array(self.centre)) / np.array(self.spread)
        return spreads


class TableNetwork(nn.Module):
    """The global model of a table: an MLP with two hidden layers, whose inputs are asinh(spreads).

    Typical values of a column take up a tenth of a pixel's range, from which a network learns slowly.
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
    """The shape of the image of one row: a single line of pixels if it fits, of at least two pixels."""
    rows = -(-columns // _MAX_WIDTH)
    return 1, rows, max(-(-columns // rows), 2)


def table_settings(settings: Settings) -> Settings:
    """The settings of a preset, adapted to tables."""
    changes: dict[str, Any] = {f"classifier.{name}": value for name, value in _CLASSIFIER.items()}
    if isinstance(settings.codec, RateSettings):
        changes |= _CODES
    return override(settings, changes)
