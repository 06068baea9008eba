"""Autoencoders of ±1 codes, for image shapes from 1x8x8 up: decoders d(c; υ) and their encoders.

image ── encoder ── embedding ── sign ── code ── decoder ── image in [0, 1]
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from logcl.core.settings import MOST_ADDRESS_BITS, AutoencoderNetwork, Frozen, ImageShape
from logcl.nn.networks.layers import BatchNorm, check_activations, normalised
from logcl.nn.networks.superposed import SuperposedDecoder

_MOST_ACTIVATIONS = 2**26  # per layer and image: 256 MB
_PUBLISHED_WIDTH = 32  # BinPlay's d


class AutoencoderSpec(Frozen):
    """Description from which the networks of a local model are built."""

    network: AutoencoderNetwork
    image_shape: ImageShape
    length: int = Field(ge=1, le=2**22)
    """Values per code; for `superposed`, bits of the address."""
    width: int = Field(ge=1, le=65_536)

    @model_validator(mode="after")
    def _bounded(self) -> AutoencoderSpec:
        if self.network == "superposed" and self.length > MOST_ADDRESS_BITS:
            raise ValueError(f"{self.length} address bits are too many; use at most {MOST_ADDRESS_BITS}")
        _, height, columns = self.image_shape
        # Convolutions have few weights, however many activations: a forged file could demand any amount.
        largest = {"conv": self.width * height * columns // 4, "binplay": 6 * self.width * height * columns}
        check_activations(self, largest.get(self.network, 0), _MOST_ACTIVATIONS)
        return self

    @property
    def code_length(self) -> int:
        """Values per code as the decoder reads it; for `superposed`, the address followed by the signs."""
        return self.length + self.width if self.network == "superposed" else self.length


def decoder(spec: AutoencoderSpec) -> nn.Module:
    """Codes (n, code_length) → images (n, C, H, W) in [0, 1]."""
    kinds: dict[str, type[nn.Module]] = {
        "mlp": MLPDecoder,
        "conv": ConvDecoder,
        "binplay": BinPlayDecoder,
        "superposed": SuperposedDecoder,
    }
    return kinds[spec.network](spec.image_shape, spec.length, spec.width)


def encoder(spec: AutoencoderSpec, *, centred: bool) -> Encoder:
    """Images (n, C, H, W) → embeddings (n, bits); their signs are the code.

    `centred` normalises each bit over the batch, without learned scale or shift. Every bit is then 1 for
    about half of the images, which halves the error of learned codes. Codes that are given rather than
    learned need an encoder without it.
    """
    (channels, height, columns), width, last = spec.image_shape, spec.width, spec.length
    layers: list[nn.Module] = []
    if spec.network == "mlp":
        hidden = max(2 * width, 256)  # wide, because the decoder alone counts towards the size of a level
        first = nn.Linear(math.prod(spec.image_shape), hidden)
        layers = [nn.Flatten(), first, nn.ReLU(), nn.Linear(hidden, last)]
    elif spec.network == "conv":
        last, _, _ = _grid(spec.image_shape, spec.length)
        layers = [
            nn.Conv2d(channels, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, last, 1),
        ]
    elif spec.network == "binplay":
        for before, after in pairwise((channels, width, 2 * width, 4 * width)):
            strided = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
            layers += normalised(strided, nn.LeakyReLU())
        cells = -(-height // 8) * -(-columns // 8)
        layers += [nn.Flatten(), nn.Linear(4 * width * cells, last)]
    else:
        raise ValueError("a superposed decoder has no encoder; use that of an mlp")
    layers.append(BatchNorm(last, affine=False) if centred else nn.Identity())
    return Encoder(spec, layers)


class Encoder(nn.Module):
    """Layers from images to embeddings, flat or, for `conv`, in the bit planes of `ConvDecoder`."""

    def __init__(self, spec: AutoencoderSpec, layers: list[nn.Module]) -> None:
        super().__init__()
        self.spec = spec
        self.layers = nn.Sequential(*layers)

    def forward(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, bits)."""
        if self.spec.network == "conv":
            _, height, width = self.spec.image_shape
            image = nn.functional.pad(image, (0, -width % 4, 0, -height % 4), mode="replicate")
        embedding: Tensor = self.layers(image)
        return embedding.flatten(1)[:, : self.spec.length]


class MLPDecoder(nn.Module):
    """One hidden layer: bits → width → pixels."""

    def __init__(self, image_shape: ImageShape, bits: int, width: int) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.hidden = nn.Linear(bits, width)
        self.pixels = nn.Linear(width, math.prod(image_shape))

    def forward(self, code: Tensor) -> Tensor:
        """(n, bits) → (n, C, H, W)."""
        hidden = nn.functional.relu(self.hidden(code))
        image: Tensor = torch.sigmoid(self.pixels(hidden)).unflatten(1, self.image_shape)
        return image


class ConvDecoder(nn.Module):
    """Bit planes at a quarter of the resolution, upsampled by convolutions and two pixel shuffles.

    Sides that are not multiples of four are decoded larger and cropped.
    """

    def __init__(self, image_shape: ImageShape, bits: int, width: int) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.grid = _grid(image_shape, bits)
        self.layers = nn.Sequential(
            nn.Conv2d(self.grid[0], 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 1),
            nn.PixelShuffle(2),
            nn.ReLU(),
            nn.Conv2d(width, 4 * image_shape[0], 3, padding=1),
            nn.PixelShuffle(2),
            nn.Sigmoid(),
        )

    def forward(self, code: Tensor) -> Tensor:
        """(n, bits) → (n, C, H, W)."""
        missing = math.prod(self.grid) - code.shape[1]
        image: Tensor = self.layers(nn.functional.pad(code, (0, missing)).unflatten(1, self.grid))
        _, height, width = self.image_shape
        return image[:, :, :height, :width]


def _grid(image_shape: ImageShape, bits: int) -> tuple[int, int, int]:
    """Planes, rows and columns of the bit grid; the last plane may be partly used."""
    _, height, width = image_shape
    rows, columns = -(-height // 4), -(-width // 4)
    return -(-bits // (rows * columns)), rows, columns


class BinPlayDecoder(nn.Module):
    """The decoder of BinPlay (Deja et al. 2020), which the paper uses at every level.

    Code → 1.5 · bits units → d maps → 4d → 6d → 5d → C, the last four by transposed convolutions. Layers,
    kernels and strides are those of the authors' public code. A map of s x s cells becomes an image of side
    4s - 4 with 3x3 kernels and of side 4s with 4x4 kernels, so 8x8 cells give 28x28 and 32x32 images, the two
    published cases: 1.2 million weights with 200 bits, 5.5 million with 1000. Differences from BinPlay:
    - BinPlay appends ten bits of task number to each code, because its codes restart with each task. Here
      codes depend on the index over all tasks, so these bits are not needed (0.3 % fewer weights).
    - The hidden layer of 1.5 · bits units is scaled by d / 32, so that all layers shrink in smaller levels.
    - Other image sizes use the smallest map that covers them, and the decoded image is cropped on the right
      and at the bottom: 3x3 kernels up to 28 pixels per side, 4x4 kernels above.
    """

    def __init__(self, image_shape: ImageShape, bits: int, d: int) -> None:
        super().__init__()
        channels, height, width = image_shape
        hidden = max(round(1.5 * bits * d / _PUBLISHED_WIDTH), 1)
        kernel, margin, padding = (3, 4, 2) if max(height, width) <= 28 else (4, 0, 1)
        # At least two cells: the padding of the first layer would leave nothing of one.
        self.map = d, max(-(-(height + margin) // 4), 2), max(-(-(width + margin) // 4), 2)
        self.size = height, width
        self.dense = nn.Sequential(
            nn.Linear(bits, hidden), nn.LeakyReLU(), nn.Linear(hidden, math.prod(self.map)), nn.LeakyReLU()
        )
        self.layers = nn.Sequential(
            *normalised(nn.ConvTranspose2d(d, 4 * d, 3, stride=2, padding=2, bias=False), nn.LeakyReLU()),
            *normalised(nn.ConvTranspose2d(4 * d, 6 * d, kernel, stride=2, bias=False), nn.LeakyReLU()),
            *normalised(nn.ConvTranspose2d(6 * d, 5 * d, kernel, bias=False), nn.LeakyReLU()),
            nn.ConvTranspose2d(5 * d, channels, 4, padding=padding, bias=False),
        )

    def forward(self, code: Tensor) -> Tensor:
        """(n, bits) → (n, C, H, W)."""
        height, width = self.size
        image: Tensor = self.layers(self.dense(code).unflatten(1, self.map))
        return torch.sigmoid(image[:, :, :height, :width])
