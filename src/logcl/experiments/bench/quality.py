"""Rate and distortion: PSNR, MS-SSIM, and the bytes that codecs take at equal PSNR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from logcl.core.images import rows_at_once
from logcl.nn.images import to_unit

Values = NDArray[np.float64]
Curve = Sequence[tuple[float, float]]
"""(PSNR in dB, bytes per image) at several rates, in any order."""

RANGE = (24.0, 34.0)
"""The PSNR in dB over which codecs are compared."""
_GRID = np.linspace(*RANGE, 201)

_SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # Wang, Simoncelli and Bovik 2003
_WINDOW, _SIGMA = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2


def psnr(errors: ArrayLike) -> Values:
    """PSNR in dB of mean squared errors, pixels in [0, 1]; at most 60 dB, also for equal images."""
    return np.asarray(-10 * np.log10(np.maximum(errors, 1e-6)), np.float64)


def ms_ssim(x: NDArray[np.uint8], z: NDArray[np.uint8]) -> Values:
    """Multi-scale structural similarity of each pair of images: (n, C, H, W) twice → (n,).

    All five scales need a side of 176 pixels. Smaller images have fewer, with the weights of the remaining
    scales divided by their sum. Colour: the mean over channels.
    """
    rows = rows_at_once(x.shape[1:])
    found = []
    for start in range(0, len(x), rows):
        pair = [to_unit(torch.from_numpy(images[start : start + rows])) for images in (x, z)]
        found.append(_ms_ssim(*pair).double().numpy())
    return np.concatenate(found)


def _ms_ssim(x: Tensor, z: Tensor) -> Tensor:
    side = min(x.shape[2:])
    scales = sum(side >= _WINDOW * 2**k for k in range(len(_SCALE_WEIGHTS))) or 1
    weights = np.array(_SCALE_WEIGHTS[:scales]) / sum(_SCALE_WEIGHTS[:scales])
    result = torch.ones(x.shape[:2])
    for scale, weight in enumerate(weights, start=1):
        if scale > 1:
            x, z = functional.avg_pool2d(x, 2), functional.avg_pool2d(z, 2)
        luminance, structure = _similarity(x, z)
        similar = luminance * structure if scale == scales else structure
        result *= similar.mean((2, 3)).clamp(min=0) ** weight
    return result.mean(1)


def _similarity(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Luminance, and contrast times structure, at each position of the window inside the images."""
    rows, columns = _window(x.shape[2]).T, _window(x.shape[3])

    def blurred(values: Tensor) -> Tensor:
        return rows @ (values @ columns)  # ten times as fast as a convolution

    a, b = blurred(x), blurred(z)
    variances = blurred(x * x) - a * a + blurred(z * z) - b * b
    covariance = blurred(x * z) - a * b
    return (2 * a * b + _C1) / (a * a + b * b + _C1), (2 * covariance + _C2) / (variances + _C2)


def _window(side: int) -> Tensor:
    """Gaussian windows as the columns of a matrix (side, positions)."""
    width = min(_WINDOW, side)
    offsets = torch.arange(side)[:, None] - torch.arange(side - width + 1)
    weights = torch.exp(-(((offsets - (width - 1) / 2) / _SIGMA) ** 2) / 2)
    weights = weights * ((offsets >= 0) & (offsets < width))
    return weights / weights.sum(0)


def bytes_at(curve: Curve, wanted: Sequence[float] | Values, *, or_better: bool = False) -> Values:
    """Bytes per image at each wanted PSNR: log bytes interpolated linearly between the points of a curve.

    NaN outside the curve; below it the bytes of its lowest point if `or_better`. Points that another one
    beats in both PSNR and bytes are left out.
    """
    front: list[tuple[float, float]] = []
    for quality, size in sorted(curve, reverse=True):
        if not front or size < front[-1][1]:
            front.append((quality, size))
    if not front:
        return np.full(len(wanted), np.nan)
    qualities, sizes = np.array(front[::-1]).T
    left = np.log(sizes[0]) if or_better else np.nan
    logs: Values = np.interp(wanted, qualities, np.log(sizes), left=left, right=np.nan)
    return np.exp(logs)


def relative_bytes(curve: Curve, references: Sequence[Curve]) -> tuple[float | None, float]:
    """Bytes of a codec relative to the best of others at equal PSNR, as by Bjøntegaard (2001).

    Returns the geometric mean of the ratio over `RANGE`, where it is defined (None: nowhere), and the share
    of the range where it is. The reference at each PSNR is the smallest file of at least that quality. A
    curve of a single point, which covers nothing, is compared at that point.
    """

    def logs(at: Values) -> Values:
        best = np.fmin.reduce([bytes_at(other, at, or_better=True) for other in references or [()]])
        ratios: Values = np.log(bytes_at(curve, at) / best)
        return ratios[np.isfinite(ratios)]

    found = logs(_GRID)
    share = len(found) / len(_GRID)
    if not share:
        found = logs(np.array([quality for quality, _ in curve if RANGE[0] <= quality <= RANGE[1]]))
    return float(np.exp(found.mean())) if len(found) else None, share
