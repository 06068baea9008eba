"""Decoders d(c; υ): ±1 codes to images, and the encoders that teach them where to put which image.

Any image shape from 1x8x8 up. Only the decoder is kept; the encoder is dropped after a fit.

    image ── encoder ── embedding (no scale of its own) ── sign ── code ── decoder ── image in [0, 1]
"""

from __future__ import annotations

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from logcl.core.settings import MOST_ADDRESS_BITS, AutoencoderNetwork, Frozen, ImageShape
from logcl.nn.networks.binplay import BinPlayDecoder, BinPlayEncoder
from logcl.nn.networks.layers import BatchNorm
from logcl.nn.networks.superposed import SuperposedDecoder

_MOST_ACTIVATIONS = 2**26  # of a layer for one image: 256 MB


class AutoencoderSpec(Frozen):
    """All that is needed to build the networks of one local model again."""

    network: AutoencoderNetwork
    image_shape: ImageShape
    length: int = Field(ge=1, le=2**22)
    """Numbers in a code; in the address of a code for `superposed`."""
    width: int = Field(ge=1, le=65_536)

    @model_validator(mode="after")
    def _bounded(self) -> AutoencoderSpec:
        if self.network == "superposed" and self.length > MOST_ADDRESS_BITS:
            raise ValueError(f"{self.length} address bits are more than {MOST_ADDRESS_BITS}")
        _, height, columns = self.image_shape
        # Convolutions are the same whatever the image: few weights may stand for any number of activations.
        largest = {"conv": self.width * height * columns // 4, "binplay": 6 * self.width * height * columns}
        if largest.get(self.network, 0) > _MOST_ACTIVATIONS:
            raise ValueError(
                f"network = {self.network} with width = {self.width} is too wide for images of "
                f"{height}x{columns}; choose a smaller one"
            )
        return self

    @property
    def code_length(self) -> int:
        """Numbers in a code as the decoder reads it: `superposed` reads signs behind the address."""
        return self.length + self.width if self.network == "superposed" else self.length


def decoder(spec: AutoencoderSpec) -> nn.Module:
    """Codes (n, code_length) → images (n, C, H, W) in [0, 1]."""
    if spec.network == "superposed":
        return SuperposedDecoder(spec.image_shape, spec.length, spec.width)
    if spec.network == "binplay":
        return BinPlayDecoder(spec.image_shape, spec.length, spec.width)
    return MLPDecoder(spec) if spec.network == "mlp" else ConvDecoder(spec)


def encoder(spec: AutoencoderSpec, *, centred: bool) -> nn.Module:
    """Images (n, C, H, W) → embeddings (n, bits); their signs are the code.

    `centred` normalises each bit over the batch, without scale or shift of its own: every bit is then 1
    for about half of the images, which halves the error of learned codes. Codes that are given, not
    learned, have no such freedom, and their encoder goes without.
    """
    if spec.network == "superposed":
        raise ValueError("a superposed decoder has no encoder of its own; its warm-up uses an mlp's")
    if spec.network == "binplay":
        last = Centre(spec.length, affine=False) if centred else nn.Identity()
        return BinPlayEncoder(spec.image_shape, spec.length, spec.width, last)
    return MLPEncoder(spec, centred) if spec.network == "mlp" else ConvEncoder(spec, centred)


class MLPDecoder(nn.Module):
    """One hidden layer: bits → width → pixels."""

    def __init__(self, spec: AutoencoderSpec) -> None:
        super().__init__()
        channels, height, width = spec.image_shape
        self.image_shape = spec.image_shape
        self.hidden = nn.Linear(spec.length, spec.width)
        self.pixels = nn.Linear(spec.width, channels * height * width)

    def forward(self, code: Tensor) -> Tensor:
        """(n, bits) → (n, C, H, W)."""
        hidden = nn.functional.relu(self.hidden(code))
        image: Tensor = torch.sigmoid(self.pixels(hidden)).unflatten(1, self.image_shape)
        return image


class Centre(BatchNorm):
    """Batch normalisation of embeddings, whether they are laid out in planes or not."""

    def forward(self, embedding: Tensor) -> Tensor:
        """(n, planes, rows, columns) or (n, bits), the same out."""
        planes = embedding if embedding.dim() == 4 else embedding[:, :, None, None]
        return super().forward(planes).reshape(embedding.shape)


class MLPEncoder(nn.Module):
    """Two hidden layers: the encoder is dropped after the fit, so its size costs no bytes."""

    def __init__(self, spec: AutoencoderSpec, centred: bool) -> None:
        super().__init__()
        channels, height, width = spec.image_shape
        hidden = max(2 * spec.width, 256)
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * height * width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, spec.length),
            Centre(spec.length, affine=False) if centred else nn.Identity(),
        )

    def forward(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, bits)."""
        embedding: Tensor = self.layers(image)
        return embedding


class ConvDecoder(nn.Module):
    """Bit planes at a quarter of the resolution, two convolutions, then two steps of pixel shuffling.

    Sides that are no multiple of four are decoded larger and cropped.
    """

    def __init__(self, spec: AutoencoderSpec) -> None:
        super().__init__()
        self.spec = spec
        channels, width = spec.image_shape[0], spec.width
        planes, _, _ = _grid(spec)
        self.layers = nn.Sequential(
            nn.Conv2d(planes, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 1),
            nn.PixelShuffle(2),
            nn.ReLU(),
            nn.Conv2d(width, 4 * channels, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Sigmoid(),
        )

    def forward(self, code: Tensor) -> Tensor:
        """(n, bits) → (n, C, H, W)."""
        planes, rows, columns = _grid(self.spec)
        missing = planes * rows * columns - self.spec.length
        grid = nn.functional.pad(code, (0, missing)).unflatten(1, (planes, rows, columns))
        image: Tensor = self.layers(grid)
        _, height, width = self.spec.image_shape
        return image[:, :, :height, :width]


class ConvEncoder(nn.Module):
    """Strided convolutions down to the bit planes of `ConvDecoder`."""

    def __init__(self, spec: AutoencoderSpec, centred: bool) -> None:
        super().__init__()
        self.spec = spec
        channels, width = spec.image_shape[0], spec.width
        planes, _, _ = _grid(spec)
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, planes, 1),
            Centre(planes, affine=False) if centred else nn.Identity(),
        )

    def forward(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, bits)."""
        _, height, width = self.spec.image_shape
        padded = nn.functional.pad(image, (0, -width % 4, 0, -height % 4), mode="replicate")
        embedding: Tensor = self.layers(padded)
        return embedding.flatten(1)[:, : self.spec.length]


def _grid(spec: AutoencoderSpec) -> tuple[int, int, int]:
    """Planes, rows and columns of the bit grid: enough planes for all bits, the last one maybe in part."""
    _, height, width = spec.image_shape
    rows, columns = -(-height // 4), -(-width // 4)
    return -(-spec.length // (rows * columns)), rows, columns
