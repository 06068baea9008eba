"""Autoencoders of ±1 codes, for image shapes from 1x8x8 up: decoders d(c; υ) and their encoders.

Only the decoder is stored; the encoder is discarded after a fit.

    image ── encoder ── embedding ── sign ── code ── decoder ── image in [0, 1]
"""

from __future__ import annotations

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from logcl.core.settings import MOST_ADDRESS_BITS, AutoencoderNetwork, Frozen, ImageShape
from logcl.nn.networks.binplay import BinPlayDecoder, BinPlayEncoder
from logcl.nn.networks.layers import BatchNorm
from logcl.nn.networks.superposed import SuperposedDecoder

_MOST_ACTIVATIONS = 2**26  # per layer and image: 256 MB


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
        if largest.get(self.network, 0) > _MOST_ACTIVATIONS:
            raise ValueError(
                f"network = {self.network} with width = {self.width} is too wide for images of "
                f"{height}x{columns}; choose a smaller width"
            )
        return self

    @property
    def code_length(self) -> int:
        """Values per code as the decoder reads it; for `superposed`, the address followed by the signs."""
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

    `centred` normalises each bit over the batch, without learned scale or shift. Every bit is then 1 for
    about half of the images, which halves the error of learned codes. Codes that are given rather than
    learned need an encoder without it.
    """
    if spec.network == "superposed":
        raise ValueError("a superposed decoder has no encoder; use that of an mlp")
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
    """Batch normalisation of embeddings, flat or in planes."""

    def forward(self, embedding: Tensor) -> Tensor:
        """(n, planes, rows, columns) or (n, bits) → the same shape."""
        planes = embedding if embedding.dim() == 4 else embedding[:, :, None, None]
        return super().forward(planes).reshape(embedding.shape)


class MLPEncoder(nn.Module):
    """One wide hidden layer; the encoder is discarded after the fit, so its size costs no bytes."""

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
    """Bit planes at a quarter of the resolution, upsampled by convolutions and two pixel shuffles.

    Sides that are not multiples of four are decoded larger and cropped.
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
    """Planes, rows and columns of the bit grid; the last plane may be partly used."""
    _, height, width = spec.image_shape
    rows, columns = -(-height // 4), -(-width // 4)
    return -(-spec.length // (rows * columns)), rows, columns
