"""Whether images may be mirrored: a measurement on the first task.

Mirrored photographs look like photographs; mirrored writing does not look like writing. So the question is
whether an image can be told from its mirror image by somebody who knows its class. This is answered by kernel
ridge regression, whose leave-one-out predictions have a closed form: nothing is trained, nothing is random.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core.trials import MirrorTrial

_MOST, _LEAST = 2048, 16  # images that are compared; below, the measurement would be chance
_SIDE = 16  # pixels; larger images are averaged
_TOLD = 0.72  # strokes are told in 0.74 of all cases or more, photographs in 0.72 or less
_SHARED = 0.5  # weight of images of other classes
_RIDGE = 0.1


def measure(x: NDArray[np.uint8], y: NDArray[np.int64]) -> MirrorTrial:
    """Compare images (n, C, H, W) of classes (n,) with their mirror images.

    Below a few images the usual is assumed: colour images are photographs, grey ones are not.
    """
    rows = np.linspace(0, len(x) - 1, min(len(x), _MOST)).round().astype(int)
    if len(rows) < _LEAST:
        return MirrorTrial(images=len(rows), told=None, mirror=x.shape[1] > 1)
    told = _told(torch.from_numpy(np.asarray(x[rows])), torch.from_numpy(np.asarray(y[rows])))
    chance = 0.5 + 1 / len(rows) ** 0.5  # two standard errors above the mean of pure chance
    return MirrorTrial(images=len(rows), told=told, mirror=told < max(_TOLD, chance))


def _told(x: Tensor, y: Tensor) -> float:
    """The part of the images that are told from their mirror images, by what the others look like.

    With a kernel k, the odd functions of an image, f(mirrored x) = -f(x), have the kernel
    k(x, x') - k(x, mirrored x'). The one sought is 1 on every image.
    """
    image, mirrored = _standardised(x), _standardised(x.flip(3))
    near, far = torch.cdist(image, image).square(), torch.cdist(image, mirrored).square()
    scale = near.median().clamp(min=1e-6) / 2
    kernel = ((-near / scale).exp() - (-far / scale).exp()).double()
    kernel *= torch.where(y[:, None] == y, 1.0, _SHARED)
    inverse = torch.linalg.inv(kernel + _RIDGE * torch.eye(len(kernel), dtype=kernel.dtype))
    left_out = 1 - inverse.sum(dim=1) / inverse.diagonal()
    return float((left_out > 1e-6).double().mean() + (left_out.abs() <= 1e-6).double().mean() / 2)


def _standardised(x: Tensor) -> Tensor:
    """uint8 images (n, C, H, W) as rows of at most 16x16 pixels, each of mean 0 and variance 1."""
    rows, columns = (min(side, _SIDE) for side in x.shape[2:])
    flat = nn.functional.adaptive_avg_pool2d(x.float() / 255, (rows, columns)).flatten(1)
    flat = flat - flat.mean(dim=1, keepdim=True)
    return flat / flat.square().mean(dim=1, keepdim=True).sqrt().clamp(min=1e-3)
