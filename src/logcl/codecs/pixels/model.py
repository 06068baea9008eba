"""A small network of integers that guesses a symbol from those that are decoded already.

    neighbours (already decoded), position ── integer network ── frequencies

The network is trained with floats and rounded: 8-bit weights, 10-bit activations. Products and sums stay
below 2^24, which float32 holds exactly, in any order of summation: every machine finds the same frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.codecs.coding import ans
from logcl.core.errors import Damaged
from logcl.core.settings import Recipe
from logcl.nn.training import Work, fit, seeded

Symbols = NDArray[np.uint8]
"""(n, positions)."""
Floats = NDArray[np.float32]
"""Integers, unless it says otherwise."""

LARGEST_INPUT = 63
"""Symbols enter the network as integers from 0 to this one, positions from minus this one."""
MOST_SYMBOLS, MOST_INPUTS, MOST_UNITS = 64, 128, 64
_UNIT = 64  # integers per unit of an input or activation
_MOST_ACTIVATION = 1023
_MOST_BIAS = 2**22
_FINE, _SPAN = 32, 16  # logits are rounded to 1/32 bit, and count down to 2^-16
_POWERS = np.rint(2.0 ** (_SPAN - np.arange(_SPAN * _FINE) / _FINE))  # no value is near a half
_PER_IMAGE = 256  # symbols of an image in a step of training


@dataclass(frozen=True)
class Lattice:
    """Where an image has symbols, in which order they are coded, and what the network sees of each."""

    neighbours: NDArray[np.intp]
    """(positions, context): positions of decoded symbols; one past the last is outside the image."""
    places: Floats
    """(positions, features): where a position is."""
    waves: Sequence[NDArray[np.intp]]
    """The positions in coding order; those of one wave are not neighbours of each other."""

    def __len__(self) -> int:
        return len(self.neighbours)

    @property
    def inputs(self) -> int:
        """What the network has for each symbol."""
        result: int = self.neighbours.shape[1] + self.places.shape[1]
        return result


class ContextModel:
    """Three layers of integers: inputs → hidden → hidden → one logit per symbol."""

    def __init__(self, layers: Sequence[tuple[Floats, Floats, int]]) -> None:
        """layers: weights (outputs, inputs), biases (outputs,), and the shift that weights are scaled by."""
        self.layers = tuple(layers)

    @staticmethod
    def of(network: nn.Sequential) -> ContextModel:
        """Round a network of floats, whose inputs are in units of 64."""
        layers = []
        linear = [module for module in network if isinstance(module, nn.Linear)]
        for layer in linear:
            weights, biases = (
                values.detach().cpu().double().numpy() for values in (layer.weight, layer.bias)
            )
            if layer is linear[-1]:  # logits in bits
                weights, biases = weights / math.log(2), biases / math.log(2)
            shift = min(max(math.floor(math.log2(127 / max(np.abs(weights).max(), 1e-9))), 0), 12)
            rounded = np.rint(weights * 2**shift).clip(-127, 127)
            bias = np.rint(biases * 2**shift * _UNIT).clip(-_MOST_BIAS, _MOST_BIAS)
            layers.append((rounded.astype(np.float32), bias.astype(np.float32), shift))
        return ContextModel(layers)

    def network(self) -> nn.Sequential:
        """As floats, to train it further."""
        sizes = [self.layers[0][0].shape[1], *(len(biases) for _, biases, _ in self.layers)]
        found = new_network(sizes)
        linear = [module for module in found if isinstance(module, nn.Linear)]
        for layer, (weights, biases, shift) in zip(linear, self.layers, strict=True):
            scale = 2.0**-shift * (math.log(2) if layer is linear[-1] else 1)
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weights * np.float32(scale)))
                layer.bias.copy_(torch.from_numpy(biases * np.float32(scale / _UNIT)))
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContextModel) and all(
            mine.shape == its.shape and bool(np.array_equal(mine, its))
            for one, two in zip(self.layers, other.layers, strict=True)
            for mine, its in zip(map(np.asarray, one), map(np.asarray, two), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def symbols(self) -> int:
        """How many there are."""
        return len(self.layers[-1][1])

    def place_biases(self, places: Floats) -> Floats:
        """What positions add to the first layer: (positions, features) → (positions, hidden)."""
        weights, biases, _ = self.layers[0]
        found: Floats = places @ weights[:, -places.shape[1] :].T + biases
        return found

    def first_layer(self, context: Floats) -> Floats:
        """What contexts (..., context, n) add to the first layer: (..., hidden, n)."""
        weights, _, _ = self.layers[0]
        found: Floats = np.matmul(weights[:, : context.shape[-2]], context)
        return found

    def cumulative(self, values: Floats) -> NDArray[np.int32]:
        """First layers (w, hidden, n), biases included → cumulative frequencies (w, symbols + 1, n)."""
        (_, _, shift), *others = self.layers
        for weights, biases, next_shift in others:
            np.maximum(values, 0, out=values)
            values *= np.float32(2.0**-shift)
            np.floor(values, out=values)
            np.minimum(values, _MOST_ACTIVATION, out=values)
            values = np.matmul(weights, values)
            values += biases[:, None]
            shift = next_shift
        return _cumulative(values, shift)

    def tensors(self) -> dict[str, Tensor]:
        """What has to be stored; `restore` reads it."""
        found = {"shifts": torch.tensor([shift for _, _, shift in self.layers], dtype=torch.uint8)}
        for number, (weights, biases, _) in enumerate(self.layers):
            found[f"weights.{number}"] = torch.from_numpy(weights.astype(np.int8))
            found[f"biases.{number}"] = torch.from_numpy(biases.astype(np.int32))
        return found

    @staticmethod
    def restore(tensors: Mapping[str, Tensor], lattice: Lattice, symbols: int, name: str) -> ContextModel:
        """The inverse of `tensors`; refuses weights of another shape, or too large to be exact."""
        broken = Damaged(f"{name} has no network for its symbols; `logcl verify` says what is intact")
        shifts, width = tensors.get("shifts"), lattice.inputs
        if shifts is None or shifts.dtype != torch.uint8 or shifts.shape != (3,) or int(shifts.max()) > 12:
            raise broken
        layers = []
        for number, shift in enumerate(shifts.tolist()):
            weights, biases = tensors.get(f"weights.{number}"), tensors.get(f"biases.{number}")
            if (
                weights is None or weights.dtype != torch.int8 or weights.dim() != 2
                or biases is None or biases.dtype != torch.int32 or biases.dim() != 1
                or weights.shape != (len(biases), width) or not 1 <= len(biases) <= MOST_UNITS
                or not -_MOST_BIAS <= int(biases.min()) <= int(biases.max()) <= _MOST_BIAS
            ):  # fmt: skip
                raise broken
            layers.append((weights.numpy().astype(np.float32), biases.numpy().astype(np.float32), shift))
            width = len(biases)
        if width != symbols:
            raise broken
        return ContextModel(layers)


def _cumulative(logits: Floats, shift: int) -> NDArray[np.int32]:
    """Integer logits (w, symbols, n), 2^(shift + 6) per bit → cumulative frequencies, none of them zero."""
    symbols = logits.shape[1]
    below = logits.max(axis=1, keepdims=True) - logits
    below *= np.float32(_FINE * 2.0**-shift / _UNIT)
    np.minimum(below, _SPAN * _FINE - 1, out=below)
    powers = _POWERS[below.astype(np.intp)]
    # Integers below 2^31 in float64: the quotient is never rounded up to the next integer.
    frequencies = np.floor(powers * (ans.TOTAL - symbols) / powers.sum(axis=1, keepdims=True)) + 1
    most = powers.argmax(axis=1)[:, None]
    rest = ans.TOTAL - frequencies.sum(axis=1, keepdims=True)
    np.put_along_axis(frequencies, most, np.take_along_axis(frequencies, most, 1) + rest, 1)
    found = np.zeros((logits.shape[0], symbols + 1, logits.shape[2]), np.int32)
    found[:, 1:] = np.cumsum(frequencies, axis=1)
    return found


def new_network(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def train(
    lattice: Lattice,
    inputs: Floats,
    symbols: Symbols,
    recipe: Recipe,
    work: Work,
    start: ContextModel | None = None,
    width: int = 32,
) -> ContextModel:
    """A model of symbols (n, positions), which has seen `recipe.batch_size` images in every step."""
    with seeded(work.generator):
        sizes = [lattice.inputs, width, -(-width // 2), len(inputs)]
        network = start.network() if start is not None else new_network(sizes)
    outside = np.zeros((len(symbols), 1), np.float32)
    seen = torch.from_numpy(np.concatenate([inputs[symbols], outside], axis=1) / np.float32(_UNIT))
    targets = torch.from_numpy(symbols)
    neighbours = torch.from_numpy(lattice.neighbours)
    places = torch.from_numpy(lattice.places / np.float32(_UNIT))

    def loss(rows: Tensor) -> Tensor:
        positions = torch.randint(len(lattice), (_PER_IMAGE,))
        context = seen[rows][:, neighbours[positions]]
        given = torch.cat([context, places[positions].expand(len(rows), -1, -1)], dim=2)
        value: Tensor = nn.functional.cross_entropy(
            network(given).flatten(0, 1), targets[rows][:, positions].flatten().long()
        )
        return value

    fit(network, loss, len(symbols), recipe, work)
    return ContextModel.of(network)
