"""Decoders that memorise index → image, compared at equal bytes and equal processor seconds.

    LOGCL_DATA=DIR OMP_NUM_THREADS=1 python bench/index_codes.py [SAMPLES ...]     (default: 8192 32768)

Prints one Markdown table for each level size: the first samples of Split-MNIST, in stream order. The preset
goes first; every other decoder has about its bytes and gets the processor seconds that it took.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from logcl.codecs.base import FitInput
from logcl.codecs.coding import bits as codes
from logcl.codecs.index import IndexDecoder, IndexSettings
from logcl.core.settings import Recipe
from logcl.memory.presets import preset
from logcl.nn import networks
from logcl.nn.images import to_unit
from logcl.nn.training import Work, fit, generator_for, seeded
from logcl.streams import open_stream

SHAPE = (1, 28, 28)
BYTES = 150
"""Bytes per sample, with weights in half precision."""
FASTER = 10
"""Learning rate of rows relative to layers: a row is trained only when one of its samples is drawn."""


class Dense(nn.Module):
    """The paper's code: ±1 hashes of the index, 200 of them, and an MLP."""

    def __init__(self, count: int, bits: int = 200) -> None:
        super().__init__()
        width = BYTES * count // 2 // (bits + 785)
        self.code = torch.from_numpy(codes.signs(codes.index_codes(np.arange(1, count + 1), bits)))
        self.decoder = networks.decoder(
            networks.AutoencoderSpec(network="mlp", image_shape=SHAPE, length=bits, width=width)
        )

    def forward(self, rows: Tensor) -> Tensor:
        image: Tensor = self.decoder(self.code[rows])
        return image


class Rows(nn.Module):
    """k-hot codes: the sum of one row from each of k blocks, optionally under signs, and an MLP.

    `radices` are the rows of the blocks. Rows are chosen by independent permutations of the index (balanced
    hashes) or, with `digits`, by the mixed-radix digits of the index, coarsest first.
    """

    def __init__(
        self, count: int, radices: tuple[int, ...], *, digits: bool = False, signed: bool = False
    ) -> None:
        super().__init__()
        units = networks.hidden_units(SHAPE)
        width = (BYTES * count // 2 - 785 * units) // (sum(radices) + units)
        random = np.random.default_rng(0)
        index = np.arange(count)
        if digits:
            columns = np.unravel_index(index, radices)
        else:
            columns = tuple(
                (index if len(radices) == 1 else random.permutation(count)) % radix for radix in radices
            )
        starts = np.cumsum([0, *radices[:-1]])
        self.rows = torch.from_numpy(np.stack(columns, axis=1) + starts)
        self.signs = None
        if signed:
            self.signs = torch.from_numpy(codes.signs(codes.index_codes(index, max(width, 64))))[:, :width]
        self.table = nn.Embedding(sum(radices), width)
        nn.init.normal_(self.table.weight, std=1 / FASTER / math.sqrt(len(radices)))
        self.hidden = nn.Linear(width, units)
        self.pixels = nn.Linear(units, 784)

    def forward(self, rows: Tensor) -> Tensor:
        row = nn.functional.embedding_bag(self.rows[rows], self.table.weight, mode="sum") * FASTER
        if self.signs is not None:
            row = row * self.signs[rows]
        image: Tensor = self.pixels(nn.functional.relu(self.hidden(row))).sigmoid().unflatten(1, SHAPE)
        return image


def by_similarity(images: Tensor) -> Tensor:
    """An order in which neighbours are similar: repeatedly halved along the main direction of each part."""
    x = images.flatten(1).float()
    x = x - x.mean(dim=0)
    x = x @ torch.linalg.eigh(x.T @ x).eigenvectors[:, -40:]

    def order(part: Tensor) -> Tensor:
        if len(part) <= 2:
            return part
        inside = x[part] - x[part].mean(dim=0)
        direction = torch.linalg.eigh(inside.T @ inside).eigenvectors[:, -1]
        part = part[(inside @ direction).argsort()]
        return torch.cat([order(part[: len(part) // 2]), order(part[len(part) // 2 :])])

    return order(torch.arange(len(x)))


def train(network: nn.Module, images: Tensor, seconds: float) -> None:
    """As many steps as the processor seconds allow, judged by the first twenty."""

    def loss(rows: Tensor) -> Tensor:
        return nn.functional.mse_loss(network(rows), to_unit(images[rows]))

    start = time.process_time()
    probe = Recipe(epochs=1, min_steps=20, batch_size=256, learning_rate=1e-6)
    fit(network, loss, min(20 * 256, len(images)), probe, Work(generator_for(1)))
    steps = int(20 * seconds / (time.process_time() - start))
    recipe = Recipe(epochs=1, min_steps=steps, batch_size=256, learning_rate=2e-3)
    fit(network, loss, len(images), recipe, Work(generator_for(2)))


def error(network: nn.Module, images: Tensor) -> float:
    """Mean squared error of what is decoded with weights in half precision, pixels in [0, 1]."""
    for weight in network.parameters():
        weight.data = weight.data.half().float()
    total = 0.0
    with torch.no_grad():
        for rows in torch.arange(len(images)).split(1024):
            decoded = (network(rows) * 255).round() / 255
            total += float((decoded - to_unit(images[rows])).square().sum())
    return total / images.numel()


class Superposed(nn.Module):
    """The preset's decoder, or another number of rows; trained as the codec does it, warm-up included."""

    def __init__(self, images: Tensor, bits: int, settings: IndexSettings) -> None:
        super().__init__()
        units = networks.hidden_units(SHAPE)
        width = (BYTES * len(images) // 2 - 785 * units) // (2**bits + units)
        settings = settings.model_copy(update={"bits": bits, "width": width})
        indices = np.arange(1, len(images) + 1)
        samples = FitInput(images.numpy(), indices, indices > 0, [len(images)], level=0, top_level=0)
        fitted = IndexDecoder.fit(samples, settings, Work(generator_for(0)))
        self.codec, self.codes = fitted.codec, fitted.codes

    def forward(self, rows: Tensor) -> Tensor:
        return to_unit(self.codec.decode(self.codes, rows.numpy()))


def compare(images: Tensor) -> Iterator[tuple[str, nn.Module, float]]:
    """Name, trained decoder and processor seconds of each competitor."""
    count = len(images)
    settings = preset("paper-cpu", SHAPE).codec
    assert isinstance(settings, IndexSettings)
    seconds = math.nan
    private = (count - 1).bit_length()
    for bits in (12, 10, private):
        start = time.process_time()
        network = Superposed(images, bits, settings)
        spent = time.process_time() - start
        seconds = spent if math.isnan(seconds) else seconds
        note = (
            ", the preset" if bits == 12 else ", a row of its own for each sample" if bits == private else ""
        )
        yield f"superposed, {2**bits:,} rows{note}", network, spent
    half = count // 2
    plans = {
        "dense ±1 hash, MLP": lambda: Dense(count),
        "a row for each sample, no warm-up": lambda: Rows(count, (count,)),
        "2-hot hash, n/2 rows": lambda: Rows(count, (half // 2,) * 2),
        "8-hot hash, n/2 rows": lambda: Rows(count, (half // 8,) * 8),
        "4,096 signed rows, no warm-up": lambda: Rows(count, (4096,), signed=True),
        "2-hot digits (n/8, 8)": lambda: Rows(count, (count // 8, 8), digits=True),
        "2-hot digits (n/8, 8), samples sorted by similarity": lambda: Rows(
            count, (count // 8, 8), digits=True
        ),
    }
    alike = images[by_similarity(images)]
    for name, build in plans.items():
        with seeded(generator_for(0)):
            network = build()
        targets = alike if "sorted" in name else images
        start = time.process_time()
        train(network, targets, seconds)
        network.targets = targets
        yield name, network, time.process_time() - start


def main() -> None:
    """Print one table for each number of samples."""
    stream = open_stream("mnist")
    x = torch.from_numpy(np.concatenate([np.asarray(task.x) for task in stream]))
    for count in [int(argument) for argument in sys.argv[1:]] or [8192, 32768]:
        images = x[:count]
        print(
            f"\n{count:,} images\n\n| code and decoder | bytes per sample | seconds | MSE |"
            "\n|---|---|---|---|"
        )
        for name, network, seconds in compare(images):
            size = 2 * sum(weight.numel() for weight in network.parameters()) / count
            mse = error(network, getattr(network, "targets", images))
            print(f"| {name} | {size:.0f} | {seconds:.0f} | {mse:.5f} |", flush=True)


if __name__ == "__main__":
    main()
