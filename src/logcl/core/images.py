"""Images as arrays: how many to work on at once, and how far two are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BLOCK_BYTES = 2**24


def rows_at_once(image_shape: Sequence[int]) -> int:
    """How many images (C, H, W) to work on at once where nothing is trained: 16 MB of them as float32.

    At most 1,024 and at least one. Layers of a network take some dozens of times the bytes of their images,
    so this keeps a block within about half a gigabyte.
    """
    return min(max(_BLOCK_BYTES // (4 * math.prod(image_shape)), 1), 1024)


def squared_errors(x: NDArray[np.uint8], z: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Mean squared difference of each pair of images, pixels in [0, 1]: (n, C, H, W) twice → (n,).

    In blocks, because images as floats take four times their bytes.
    """
    errors = np.empty(len(x))
    rows = rows_at_once(x.shape[1:])
    for start in range(0, len(x), rows):
        block = slice(start, start + rows)
        difference = (x[block].astype(np.float32) - z[block]) / 255
        errors[block] = np.square(difference).reshape(len(difference), -1).mean(axis=1, dtype=np.float64)
    return errors
