"""The autoencoder of BinPlay (Deja et al. 2020), which the paper uses at every level.

Layers, kernels and strides are those of the authors' public code. A map of s x s cells becomes an image of
side 4s - 4 with 3x3 kernels and of side 4s with 4x4 kernels, so 8x8 cells give 28x28 and 32x32 images, the
two published cases: 1.2 million weights with 200 bits, 5.5 million with 1000.

Differences from BinPlay:
- BinPlay appends ten bits of task number to each code, because its codes restart with each task. Here codes
  depend on the index over all tasks, so these bits are not needed (0.3 % fewer weights).
- The hidden layer of 1.5 · bits units is scaled by d / 32, so that all layers shrink in smaller levels.
- Other image sizes use the smallest map that covers them, and the decoded image is cropped on the right and
  at the bottom: 3x3 kernels up to 28 pixels per side, 4x4 kernels above.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from logcl.core.settings import ImageShape
from logcl.nn.networks.layers import BatchNorm

PUBLISHED_WIDTH = 32
"""The published d."""


class BinPlayDecoder(nn.Module):
    """Code → 1.5 · bits units → d maps → 4d → 6d → 5d → C, the last four by transposed convolutions."""

    def __init__(self, image_shape: ImageShape, bits: int, d: int) -> None:
        super().__init__()
        channels, height, width = image_shape
        hidden = max(round(1.5 * bits * d / PUBLISHED_WIDTH), 1)
        small = max(height, width) <= 28
        kernel = 3 if small else 4
        margin = 4 if small else 0
        # At least two cells: the padding of the first layer would leave nothing of one.
        self.map = d, max(-(-(height + margin) // 4), 2), max(-(-(width + margin) // 4), 2)
        self.size = height, width
        self.dense = nn.Sequential(
            nn.Linear(bits, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, d * self.map[1] * self.map[2]),
            nn.LeakyReLU(),
        )
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(d, 4 * d, 3, stride=2, padding=2, bias=False),
            BatchNorm(4 * d),
            nn.LeakyReLU(),
            nn.ConvTranspose2d(4 * d, 6 * d, kernel, stride=2, bias=False),
            BatchNorm(6 * d),
            nn.LeakyReLU(),
            nn.ConvTranspose2d(6 * d, 5 * d, kernel, bias=False),
            BatchNorm(5 * d),
            nn.LeakyReLU(),
            nn.ConvTranspose2d(5 * d, channels, 4, padding=2 if small else 1, bias=False),
        )

    def forward(self, code: Tensor) -> Tensor:
        """(n, bits) → (n, C, H, W)."""
        height, width = self.size
        image: Tensor = self.layers(self.dense(code).unflatten(1, self.map))
        return torch.sigmoid(image[:, :, :height, :width])


class BinPlayEncoder(nn.Module):
    """Three strided convolutions with d, 2d and 4d channels, a linear layer to the embedding, then `last`."""

    def __init__(self, image_shape: ImageShape, bits: int, d: int, last: nn.Module) -> None:
        super().__init__()
        channels, height, width = image_shape
        layers: list[nn.Module] = []
        for out in (d, 2 * d, 4 * d):
            layers += [
                nn.Conv2d(channels, out, 3, stride=2, padding=1, bias=False),
                BatchNorm(out),
                nn.LeakyReLU(),
            ]
            channels = out
        cells = -(-height // 8) * -(-width // 8)
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * d * cells, bits), last)

    def forward(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, bits)."""
        embedding: Tensor = self.layers(image)
        return embedding
