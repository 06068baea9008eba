"""Codes that are functions of the sample index, as in BinPlay and the paper: the decoder holds everything.

    sample index ── c(i), ±1 ── decoder ── image

Two ways to teach a decoder which image belongs to which code:

`mlp`, `binplay`: an autoencoder first learns where images lie; they are matched with the codes of their
level, then the decoder memorises the pairs.
`superposed`: every image takes the code of its own index, an address and signs, after a warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn

from logcl.codecs.base import Codec, CodecSettings, FitInput, Fitted, NetworkSpec, Rows, masking_noise
from logcl.codecs.coding import bits
from logcl.codecs.decoding import decode
from logcl.core.errors import BadSettings, Damaged
from logcl.core.settings import MOST_ADDRESS_BITS, MOST_SAMPLES, ImageShape, Precision, Recipe, parse_as
from logcl.nn import blobs, networks
from logcl.nn.device import choose_device
from logcl.nn.images import in_blocks, to_unit
from logcl.nn.networks import AutoencoderSpec
from logcl.nn.training import Work, fit, seeded, steps_per_epoch, total_steps

Loss = Callable[[Tensor], Tensor]
SAMPLES_PER_BYTE = 8
"""Index codes take no bytes, so without this bound a small file could claim any number of samples."""


class IndexSettings(CodecSettings, Recipe):
    """How the decoder is built and trained."""

    name: Literal["index"] = "index"
    """Which codec."""
    network: Literal["mlp", "binplay", "superposed"] = "superposed"
    """`mlp`: one hidden layer; `binplay`: as published; `superposed`: a table whose rows samples share."""
    width: int = Field(256, ge=1, le=65_536)
    """Hidden units, channels, or numbers per row (`superposed`) of the largest level."""
    weights: Precision = "half"
    """How weights are stored: one byte each and a scale per row, or in half precision."""
    bits: int = Field(12, ge=1, le=65_536)
    """Length of a code; for `superposed` of its address, so that the table has 2^bits rows at every level."""
    smallest: float = Field(1 / 8, gt=0, le=1)
    """Size of the smallest levels' decoders relative to the largest."""
    warm_up_epochs: int = Field(10, ge=1, le=100_000)
    """Epochs of the autoencoder before samples are matched with codes."""
    warm_up_learning_rate: float = Field(1e-3, gt=0)
    """Highest learning rate of the warm-up."""
    pull: float = Field(10.0, ge=0)
    """Weight of the distance between an embedding and its nearest free code."""
    assignment: Literal["greedy", "none"] = "greedy"
    """How samples are matched with codes; `superposed` needs none."""

    @model_validator(mode="after")
    def _bounded(self) -> IndexSettings:
        if self.network == "superposed" and self.bits > MOST_ADDRESS_BITS:
            raise ValueError(f"network = superposed needs bits up to {MOST_ADDRESS_BITS}, for 2^bits rows")
        return self

    @classmethod
    def noise(cls, image_shape: ImageShape) -> float:
        """As levels have decoders of their own."""
        return masking_noise(image_shape)

    @classmethod
    def for_images(cls, image_shape: ImageShape) -> IndexSettings:
        """A table small enough for a CPU."""
        values = math.prod(image_shape)
        return cls(
            network="superposed", assignment="none", bits=7 if values <= 256 else 12,
            width=min(max(2 * values // 3, 96), 2048), warm_up_epochs=8, warm_up_learning_rate=3e-3,
            epochs=10, learning_rate=3e-3, min_steps=800, batch_size=256,
        )  # fmt: skip

    def decoder(self, image_shape: ImageShape) -> AutoencoderSpec:
        """The decoder of the largest level."""
        spec = {"network": self.network, "image_shape": image_shape, "length": self.bits, "width": self.width}
        return parse_as(AutoencoderSpec, spec)

    def warm_up(self) -> Recipe | None:
        """How the autoencoder is trained before the decoder; None if there is none."""
        if self.network != "superposed" and self.assignment == "none":
            return None
        return Recipe(
            epochs=self.warm_up_epochs,
            min_steps=self.min_steps if self.network == "superposed" else 0,
            batch_size=self.batch_size,
            learning_rate=self.warm_up_learning_rate,
            schedule=self.schedule,
            decay=self.decay,
        )


class IndexSpec(NetworkSpec):
    """The decoder of one level."""

    name: Literal["index"] = "index"


@dataclass(frozen=True)
class IndexCodes:
    """The index whose code each sample has: its own, or its former one after salvage moved the level."""

    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def select(self, rows: Rows) -> IndexCodes:
        """The codes of some samples."""
        return IndexCodes(self.indices[rows])

    def tensors(self) -> dict[str, Tensor]:
        """The first index: the others are as far from it as the sample indices are."""
        return {"first": torch.tensor([int(self.indices[0])])}


class IndexDecoder(Codec):
    """A decoder that has memorised the images of its level."""

    Settings = IndexSettings
    Spec = IndexSpec
    spec: IndexSpec

    def __init__(self, spec: IndexSpec, decoder: nn.Module) -> None:
        self.spec, self.decoder = spec, decoder

    @classmethod
    def fit(
        cls, samples: FitInput, settings: IndexSettings, work: Work, starts: Sequence[Codec] = ()
    ) -> Fitted:
        """Teach a new decoder all pairs of code and image."""
        del starts  # a decoder that knows other images is no help
        shape = samples.image_shape
        spec = networks.sized(settings.decoder(shape), samples.size_ratio(settings.smallest))
        if int(samples.indices[-1]) >> spec.code_length:
            raise BadSettings(
                f"sample {samples.indices[-1]} needs a code of more than codec.bits = {settings.bits} bits; "
                f"use another memory"
            )
        if len(samples) > SAMPLES_PER_BYTE * networks.weight_count(spec):
            raise BadSettings(
                f"{len(samples)} samples are more than {SAMPLES_PER_BYTE} per weight of their decoder; use a "
                f"larger codec.width"
            )
        prepare = _superposed if spec.network == "superposed" else _assigned
        decoder, loss, order = prepare(samples, spec, settings, work)
        fit(decoder, loss, len(samples), settings, work)
        blobs.round_weights(decoder, settings.weights)
        codec = cls(IndexSpec(decoder=spec, weights=settings.weights), decoder)
        return Fitted(codec, IndexCodes(samples.indices), order)

    @property
    def can_encode(self) -> bool:
        """Never: a decoder knows the images it was taught and no others."""
        return False

    def encode(self, x: NDArray[np.uint8]) -> IndexCodes:
        """Refused."""
        del x
        raise ValueError("a decoder of index codes knows only the images it was fitted to")

    def decode(self, codes: IndexCodes, rows: Rows) -> Tensor:
        """Images (m, C, H, W)."""
        spec = self.spec.decoder
        given = lambda some: inputs(codes.indices[some], spec)  # noqa: E731
        return decode(self.decoder, given, rows, spec.image_shape, spec.widest)

    def check(self, codes: IndexCodes, rows: Rows) -> None:
        """One of them: codes are computed, and a decoder cannot fail for some only."""
        self.decode(codes, rows[:1])

    def weights(self) -> dict[str, Tensor]:
        """Of the decoder."""
        return blobs.weights(self.decoder, "decoder", self.spec.weights)

    @classmethod
    def restore(cls, spec: IndexSpec, weights: Mapping[str, Tensor], name: str) -> IndexDecoder:
        """Build the decoder and check its weights."""
        return cls(spec, blobs.restore(networks.decoder, spec.decoder, weights, "decoder", name))

    def restore_codes(
        self, tensors: Mapping[str, Tensor], indices: NDArray[np.int64], level_bytes: int, name: str
    ) -> IndexCodes:
        """The sample indices, moved to where the first code is."""
        first = tensors.get("first")
        if first is not None:
            if first.shape != (1,) or first.dtype != torch.int64 or not 1 <= int(first) < MOST_SAMPLES:
                raise Damaged(f"{name} has codes of no index; `logcl verify` says what is intact")
            indices = indices + (int(first) - int(indices[0]))
        if len(indices) > SAMPLES_PER_BYTE * level_bytes:
            raise Damaged(f"{name} claims more samples than its bytes can hold; `logcl verify` says more")
        if int(indices[-1]) >> self.spec.decoder.code_length:
            raise Damaged(f"{name} has more samples than codes; `logcl verify` says what is intact")
        return IndexCodes(indices)

    @classmethod
    def steps(cls, settings: IndexSettings, samples: int, *, warm: bool) -> int:
        """Optimiser steps of warm-up and decoder."""
        del warm
        warm_up = settings.warm_up()
        return total_steps(settings, samples) + (total_steps(warm_up, samples) if warm_up else 0)


def inputs(indices: NDArray[np.int64], spec: AutoencoderSpec) -> NDArray[np.float32]:
    """The codes c(i) of sample indices as the decoder reads them: ±1, (n, code_length)."""
    if spec.network == "superposed":
        return bits.signs(bits.superposed_codes(indices, spec.length, spec.width))
    return bits.signs(bits.index_codes(indices, spec.length))


def _assigned(
    samples: FitInput, spec: AutoencoderSpec, settings: IndexSettings, work: Work
) -> tuple[nn.Module, Loss, NDArray[np.intp]]:
    """A decoder, what to teach it (code → image), and which image each code was matched with."""
    device = choose_device()
    with seeded(work.generator):
        encoder, decoder = networks.encoder(spec, centred=False), networks.decoder(spec)
    encoder, decoder = encoder.to(device), decoder.to(device)
    images = torch.from_numpy(samples.x).to(device)
    targets = inputs(samples.indices, spec)

    order = np.arange(len(samples))
    if (recipe := settings.warm_up()) is not None:
        quiet_steps, step = 2 * steps_per_epoch(recipe, len(images)), 0

        def warm_up(rows: Tensor) -> Tensor:
            # Rebuild images and, after two epochs, stay near codes that are still free. Squared errors are
            # summed over an image's values and a code's bits.
            nonlocal step
            step += 1
            image = to_unit(images[rows.to(device)])
            embedding = encoder(image)
            rebuilt: Tensor = (decoder(embedding) - image).square().sum() / len(rows)
            if step <= quiet_steps:
                return rebuilt
            nearest = bits.nearest_free(embedding.detach().cpu().numpy(), targets)
            away = embedding - torch.from_numpy(targets[nearest]).to(device)
            total: Tensor = rebuilt + settings.pull * away.square().sum() / len(rows)
            return total

        fit(nn.ModuleList([encoder, decoder]), warm_up, len(images), recipe, work.part("warm-up"))
        embeddings = in_blocks(encoder, images).numpy()
        first = 0
        for count in samples.groups:  # codes are matched within a run, so that its history stays true
            run = slice(first, first + count)
            order[first + bits.nearest_free(embeddings[run], targets[run])] = np.arange(first, first + count)
            first += count

    given = torch.from_numpy(targets).to(device)
    ordered = torch.from_numpy(order).to(device)

    def loss(rows: Tensor) -> Tensor:
        rows = rows.to(device)
        return nn.functional.mse_loss(decoder(given[rows]), to_unit(images[ordered[rows]]))

    return decoder, loss, order


def _superposed(
    samples: FitInput, spec: AutoencoderSpec, settings: IndexSettings, work: Work
) -> tuple[nn.Module, Loss, NDArray[np.intp]]:
    """The same for a decoder of shared rows, without matching.

    The warm-up trains an autoencoder with as many latent numbers as a row has for each of its samples. Its
    embeddings are superposed in the rows, the encoder is dropped, and the decoder is trained alone.
    """
    turns, rows = np.divmod(samples.indices - 1, 2**spec.length)
    first, last = int(turns[0]), int(turns[-1])
    sharing = last - first + 1
    numbers = networks.latent_numbers(spec.width, sharing, spec.image_shape)
    units = networks.hidden_units(spec.image_shape)
    wide = spec.model_copy(update={"network": "mlp", "length": numbers, "width": units})
    device = choose_device()
    images = torch.from_numpy(samples.x).to(device)
    with seeded(work.generator):
        encoder = networks.encoder(wide, centred=True).to(device)
        hidden = nn.Linear(numbers, units).to(device)
        decoder = networks.SuperposedDecoder(spec.image_shape, spec.length, spec.width).to(device)

    def rebuilt(batch: Tensor) -> Tensor:
        image = to_unit(images[batch.to(device)])
        return nn.functional.mse_loss(decoder.paint(hidden(encoder(image))), image)

    warm_up = settings.warm_up()
    assert warm_up is not None
    warm = nn.ModuleList([encoder, hidden, decoder.pixels])
    fit(warm, rebuilt, len(samples), warm_up, work.part("warm-up"))

    masks = torch.from_numpy(bits.signs(bits.orthogonal_codes(np.arange(first, last + 1), spec.width)))
    masks = masks.to(device)
    address, turn = (torch.from_numpy(part).to(device) for part in (rows, turns - first))
    latents = torch.zeros(sharing, 2**spec.length, numbers, device=device)
    latents[turn, address] = in_blocks(encoder, images).to(device)
    networks.superpose(decoder, latents, masks, hidden)

    def loss(batch: Tensor) -> Tensor:
        batch = batch.to(device)
        decoded = decoder.look_up(address[batch], masks[turn[batch]])
        return nn.functional.mse_loss(decoded, to_unit(images[batch]))

    return decoder, loss, np.arange(len(samples))
