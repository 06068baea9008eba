"""Images as arrays: block sizes that bound memory, and squared errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BLOCK_BYTES, _LAYER_BYTES = 2**22, 2**26


def rows_at_once(image_shape: Sequence[int], widest: int = 0) -> int:
    """Images (C, H, W) per block outside training: at least 1, at most 1,024, and 4 MB as float32.

    widest: values per image in the widest layer of a network; a block has at most 64 MB of them.
    """
    rows = min(_BLOCK_BYTES // (4 * math.prod(image_shape)), _LAYER_BYTES // (4 * max(widest, 1)), 1024)
    return max(rows, 1)


def squared_errors(x: NDArray[np.uint8], z: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Mean squared difference of each pair of images, pixels in [0, 1]: (n, C, H, W) twice → (n,).

    Computed in blocks, because floats take four times the bytes of uint8 images.
    """
    errors = np.empty(len(x))
    rows = rows_at_once(x.shape[1:])
    for start in range(0, len(x), rows):
        block = slice(start, start + rows)
        difference = (x[block].astype(np.float32) - z[block]) / 255
        errors[block] = np.square(difference).reshape(len(difference), -1).mean(axis=1, dtype=np.float64)
    return errors
