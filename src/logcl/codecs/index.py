"""How images and codes find each other. Three answers to one question, all ending in a trained decoder.

`learned`: an autoencoder with a sign in the middle chooses the codes; they have to be kept.
`assigned`: the codes are given (functions of the index); images are matched with them, then the decoder
memorises the pairs, as in BinPlay and the paper. Nothing but the decoder has to be kept.
`superposed`: the codes are given and every image takes its own; a warm-up tells the decoder where to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.codecs import bits as codes
from logcl.codecs.settings import GeneratorSettings
from logcl.codecs.stored import BinaryCodes, Codes, IndexCodes, Rows
from logcl.core.images import rows_at_once
from logcl.core.settings import ImageShape, Recipe
from logcl.nn import networks
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import Work, fit, seeded, steps_a_pass


@dataclass(frozen=True)
class Encoding:
    """A decoder that turns code number j into input image number `order[j]`."""

    decoder: nn.Module
    codes: Codes
    order: NDArray[np.intp]
    analysis: nn.Module | None = None
    """What the codes were made with, for a later fit to begin with; replay does not need it."""


def learned(
    x: NDArray[np.uint8],
    spec: networks.AutoencoderSpec,
    settings: GeneratorSettings,
    work: Work,
) -> Encoding:
    """Train encoder and decoder together through the sign; x (n, C, H, W)."""
    encoder, decoder, images = _start(x, spec, work, centred=True)

    def loss(rows: Tensor) -> Tensor:
        image = to_unit(images[rows.to(images.device)])
        return nn.functional.mse_loss(decoder(binarise(encoder(image))), image)

    fit(nn.ModuleList([encoder, decoder]), loss, len(x), settings, work)
    bits = (_embed(encoder, images) > 0).astype(np.uint8)
    return Encoding(decoder, BinaryCodes(codes.pack(bits), spec.length), np.arange(len(x)))


def assigned(
    x: NDArray[np.uint8],
    given: IndexCodes,
    groups: Sequence[int],
    spec: networks.AutoencoderSpec,
    settings: GeneratorSettings,
    work: Work,
) -> Encoding:
    """Match images with the given codes, then teach the decoder code → image.

    `groups` are the lengths of consecutive stretches that keep to themselves: an image gets a code of its
    own stretch, so that what is known of a stretch (its history) stays true of its codes.
    """
    encoder, decoder, images = _start(x, spec, work, centred=False)
    targets = given.inputs(np.arange(len(x)))

    order = np.arange(len(x))
    if settings.assignment != "none":
        _warm_up(encoder, decoder, images, targets, settings, work.part("warm-up"))
        embeddings = _embed(encoder, images)
        match = codes.nearest_free if settings.assignment == "greedy" else codes.optimal_assignment
        first = 0
        for count in groups:
            stretch = slice(first, first + count)
            order[first + match(embeddings[stretch], targets[stretch])] = np.arange(first, first + count)
            first += count

    inputs = torch.from_numpy(targets).to(images.device)
    ordered = torch.from_numpy(order).to(images.device)

    def loss(rows: Tensor) -> Tensor:
        rows = rows.to(images.device)
        return nn.functional.mse_loss(decoder(inputs[rows]), to_unit(images[ordered[rows]]))

    fit(decoder, loss, len(x), settings, work)
    return Encoding(decoder, given, order)


def superposed(
    x: NDArray[np.uint8],
    given: IndexCodes,
    spec: networks.AutoencoderSpec,
    settings: GeneratorSettings,
    work: Work,
) -> Encoding:
    """Teach a decoder of shared rows the images x (n, C, H, W) of consecutive sample indices.

    The warm-up trains an autoencoder with as many real numbers in the middle as a row has for each of its
    samples. Its embeddings are superposed in the rows, the encoder is dropped, and the decoder goes on alone.
    """
    turns, rows = np.divmod(given.start - 1 + np.arange(len(x)), 2**spec.length)
    first, last = int(turns[0]), int(turns[-1])
    sharing = last - first + 1
    numbers = networks.latent_numbers(spec.width, sharing, spec.image_shape)
    units = networks.hidden_units(spec.image_shape)
    wide = spec.model_copy(update={"network": "mlp", "length": numbers, "width": units})
    device = choose_device()
    images = torch.from_numpy(x).to(device)
    with seeded(work.generator):
        encoder = networks.encoder(wide, centred=True).to(device)
        hidden = nn.Linear(numbers, units).to(device)
        decoder = networks.SuperposedDecoder(spec.image_shape, spec.length, spec.width).to(device)

    def rebuilt(batch: Tensor) -> Tensor:
        image = to_unit(images[batch.to(device)])
        return nn.functional.mse_loss(decoder.paint(hidden(encoder(image))), image)

    warm = nn.ModuleList([encoder, hidden, decoder.pixels])
    fit(warm, rebuilt, len(x), warm_up_recipe(settings), work.part("warm-up"))

    signs = codes.signs(codes.orthogonal_codes(np.arange(first, last + 1), spec.width))
    masks = torch.from_numpy(signs).to(device)
    address, turn = (torch.from_numpy(part).to(device) for part in (rows, turns - first))
    latents = torch.zeros(sharing, 2**spec.length, numbers, device=device)
    latents[turn, address] = torch.from_numpy(_embed(encoder, images)).to(device)
    networks.superpose(decoder, latents, masks, hidden)

    def loss(batch: Tensor) -> Tensor:
        batch = batch.to(device)
        decoded = decoder.look_up(address[batch], masks[turn[batch]])
        return nn.functional.mse_loss(decoded, to_unit(images[batch]))

    fit(decoder, loss, len(x), settings, work)
    return Encoding(decoder, given, np.arange(len(x)))


def has_warm_up(settings: GeneratorSettings) -> bool:
    """Whether an autoencoder is trained before the decoder."""
    return settings.codes == "index" and (settings.network == "superposed" or settings.assignment != "none")


def _start(
    x: NDArray[np.uint8], spec: networks.AutoencoderSpec, work: Work, *, centred: bool
) -> tuple[nn.Module, nn.Module, Tensor]:
    """An encoder and a decoder with fresh weights, and the images, all on the device."""
    device = choose_device()
    with seeded(work.generator):
        encoder = networks.encoder(spec, centred=centred)
        decoder = networks.decoder(spec)
    return encoder.to(device), decoder.to(device), torch.from_numpy(x).to(device)


def warm_up_recipe(settings: GeneratorSettings) -> Recipe:
    """How the autoencoder is trained before codes are assigned."""
    return Recipe(
        epochs=settings.warm_up_epochs,
        min_steps=settings.min_steps if settings.network == "superposed" else 0,
        batch_size=settings.batch_size,
        learning_rate=settings.warm_up_learning_rate,
        schedule=settings.schedule,
        decay=settings.decay,
    )


def _warm_up(
    encoder: nn.Module,
    decoder: nn.Module,
    images: Tensor,
    targets: NDArray[np.float32],
    settings: GeneratorSettings,
    work: Work,
) -> None:
    """The autoencoder before codes are assigned: rebuild images, stay near codes that are still free.

    The first two passes only rebuild. Squared errors are summed over an image's values and a code's bits.
    """
    recipe = warm_up_recipe(settings)
    quiet_steps = 2 * steps_a_pass(recipe, len(images))
    step = 0

    def loss(rows: Tensor) -> Tensor:
        nonlocal step
        step += 1
        image = to_unit(images[rows.to(images.device)])
        embedding = encoder(image)
        rebuilt: Tensor = (decoder(embedding) - image).square().sum() / len(rows)
        if step <= quiet_steps:
            return rebuilt
        nearest = codes.nearest_free(embedding.detach().cpu().numpy(), targets)
        pull = embedding - torch.from_numpy(targets[nearest]).to(images.device)
        total: Tensor = rebuilt + settings.pull * pull.square().sum() / len(rows)
        return total

    fit(nn.ModuleList([encoder, decoder]), loss, len(images), recipe, work)


def binarise(embedding: Tensor) -> Tensor:
    """±1 forward, the gradient of tanh backward."""
    soft = embedding.tanh()
    return soft + (torch.where(embedding > 0, 1.0, -1.0) - soft).detach()


@torch.no_grad()
def decode(decoder: nn.Module, stored: Codes, rows: Rows, image_shape: ImageShape) -> Tensor:
    """The images of some codes, by row: (m, C, H, W), uint8 on the CPU, in blocks of bounded size."""
    device = next(decoder.parameters()).device
    at_once = rows_at_once(image_shape)
    blocks = [
        (decoder(torch.from_numpy(stored.inputs(rows[start : start + at_once])).to(device)) * 255)
        .round()
        .to("cpu", torch.uint8)
        for start in range(0, len(rows), at_once)
    ]
    return torch.cat(blocks)


@torch.no_grad()
def _embed(encoder: nn.Module, images: Tensor) -> NDArray[np.float32]:
    blocks = [encoder(to_unit(block)) for block in images.split(rows_at_once(images.shape[1:]))]
    embedding: NDArray[np.float32] = torch.cat(blocks).cpu().numpy()
    return embedding
