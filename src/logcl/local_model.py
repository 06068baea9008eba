"""A local model: the samples of one slot, inside a decoder and either codes or nothing at all.

LocalModel.fit      samples → LocalModel
LocalModel.replay   LocalModel → samples
to_bytes, from_bytes    one safetensors blob, weights in half precision, nothing that can run code
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl import blobs, codes, encoding, networks
from logcl.allocation import Slot
from logcl.errors import BadSettings, Damaged
from logcl.progress import Progress, Silent
from logcl.samples import Run, Samples, encoded
from logcl.settings import Frozen, GeneratorSettings, Recipe, Settings
from logcl.training import choose_device, fit, generator_for, seeded, total_steps


class Description(Frozen):
    """What a blob says of itself, beside its tensors."""

    level: int
    start: int
    stop: int
    decoder: networks.AutoencoderSpec
    codes: str
    classes: tuple[int, ...]
    """Class numbers that occur in this level; labels are positions in this tuple."""
    labeller: networks.ClassifierSpec | None
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class LocalModel:
    """Decoder and labels of one slot."""

    about: Description
    decoder: nn.Module
    stored_codes: NDArray[np.uint8] | None
    """Packed bits, one row a sample; None where the code is computed from the index."""
    labels: NDArray[np.uint8] | nn.Module
    """Packed positions in `about.classes`, or the labeller that reads them off the decoded image."""

    @property
    def slot(self) -> Slot:
        """The level and its samples."""
        return Slot(self.about.level, self.about.start, self.about.stop)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The history of the samples, oldest first."""
        return self.about.runs

    @staticmethod
    def fit(
        slot: Slot, samples: Samples, settings: Settings, top_level: int, progress: Progress | None = None
    ) -> tuple[LocalModel, NDArray[np.intp]]:
        """Train the model of `slot` on its samples, oldest first.

        Also returns the order: position j of the slot now holds input sample order[j]. Stored codes keep
        the order; index codes permute samples within a run, because matching decides who gets which code.
        """
        generator = generator_for(settings.seed, slot.level, slot.start, slot.stop)
        options = settings.generator
        spec = networks.AutoencoderSpec(
            network=options.network,
            image_shape=settings.image_shape,
            bits=options.bits,
            width=max(round(options.width * size_ratio(slot.level, top_level)), 1),
        )
        common: dict[str, Any] = {
            "generator": generator,
            "progress": progress or Silent(),
            "description": f"level {slot.level} ({len(samples):,} samples)",
        }
        if options.codes == "stored":
            result = encoding.learned(samples.x, spec, options, **common)
        else:
            if slot.stop >> options.bits:
                raise BadSettings(
                    f"{slot.stop} samples need codes of more than generator.bits = {options.bits} bits"
                )
            bits = codes.index_codes(np.arange(slot.start, slot.stop + 1), options.bits)
            groups = [run.count for run in samples.runs]
            result = encoding.assigned(samples.x, bits, groups, spec, options, **common)
        _round_to_half(result.decoder)

        x, y = samples.x[result.order], samples.y[result.order]
        replayed = encoding.decode(result.decoder, result.bits)
        classes, positions = np.unique(y, return_inverse=True)
        labels: NDArray[np.uint8] | nn.Module
        labeller = None
        if options.labels == "labeller" and len(classes) > 1:
            labeller = networks.ClassifierSpec(
                network="mlp", image_shape=settings.image_shape, classes=len(classes), width=8
            )
            labels = _fit_labeller(labeller, replayed, positions, **common)
        else:
            labels = codes.pack_integers(positions, codes.integer_bits(len(classes) - 1))
        about = Description(
            level=slot.level, start=slot.start, stop=slot.stop, decoder=spec, codes=options.codes,
            classes=tuple(int(c) for c in classes), labeller=labeller,
            runs=encoded(samples.runs, _errors(x, replayed)),
        )  # fmt: skip
        packed = codes.pack(result.bits) if options.codes == "stored" else None
        return LocalModel(about, result.decoder, packed, labels), result.order

    def replay(self, indices: NDArray[np.integer[Any]] | None = None) -> tuple[Tensor, NDArray[np.int64]]:
        """Samples by global index, all of the slot by default: uint8 images on the CPU, class numbers."""
        if indices is None:
            indices = np.arange(self.about.start, self.about.stop + 1)
        rows = np.asarray(indices) - self.about.start
        bits = self.about.decoder.bits
        if self.stored_codes is None:
            rows_bits = codes.index_codes(np.asarray(indices), bits)
        else:
            rows_bits = codes.unpack(self.stored_codes[rows], bits)
        images = encoding.decode(self.decoder, rows_bits)
        return images, np.asarray(self.about.classes, dtype=np.int64)[self._positions(rows, images)]

    def samples(self) -> Samples:
        """Everything this level holds, decoded, with its history."""
        images, y = self.replay()
        return Samples(images.numpy(), y, self.runs)

    def _positions(self, rows: NDArray[np.integer[Any]], images: Tensor) -> NDArray[np.int64]:
        if isinstance(self.labels, nn.Module):
            return label(self.labels, images)
        width = codes.integer_bits(len(self.about.classes) - 1)
        positions: NDArray[np.int64] = codes.unpack_integers(self.labels, width, self.slot.samples)[rows]
        return positions

    def to_bytes(self) -> bytes:
        """The blob that `from_bytes` reads; the same model always gives the same bytes."""
        tensors = blobs.weights(self.decoder, "decoder", torch.float16)
        if self.stored_codes is not None:
            tensors["codes"] = torch.from_numpy(self.stored_codes)
        if isinstance(self.labels, nn.Module):
            tensors |= blobs.weights(self.labels, "labeller", torch.float16)
        else:
            tensors["labels"] = torch.from_numpy(self.labels)
        return blobs.pack(self.about, tensors)

    @staticmethod
    def from_bytes(blob: bytes, name: str) -> LocalModel:
        """Read a blob; `name` is what messages call it. Refuses whatever does not fit its description."""
        about, tensors = blobs.unpack(blob, Description, name)
        decoder = blobs.restore(networks.decoder, about.decoder, tensors, "decoder", name)
        labels: NDArray[np.uint8] | nn.Module
        if about.labeller is not None:
            labels = blobs.restore(networks.classifier, about.labeller, tensors, "labeller", name)
        else:
            labels = tensors.get("labels", torch.empty(0)).numpy()
        stored = tensors.get("codes", torch.empty(0)).numpy() if about.codes == "stored" else None
        model = LocalModel(about, decoder, stored, labels)
        model._check(name)
        return model

    def _check(self, name: str) -> None:
        count, about = self.slot.samples, self.about
        row = -(-about.decoder.bits // 8)
        problems = [
            (count < 1 or about.start < 1, "holds no samples"),
            (sum(run.count for run in about.runs) != count, "has a history of another length"),
            (not about.classes, "has no classes"),
        ]
        if self.stored_codes is not None:
            wrong = self.stored_codes.shape != (count, row) or self.stored_codes.dtype != np.uint8
            problems.append((wrong, "has codes of another size"))
        if not isinstance(self.labels, nn.Module):
            need = -(-count * codes.integer_bits(len(about.classes) - 1) // 8)
            wrong = self.labels.shape != (need,) or self.labels.dtype != np.uint8
            problems.append((wrong, "has labels of another size"))
        for wrong, problem in problems:
            if wrong:
                raise Damaged(f"{name} {problem}; run `logcl verify`")


_LABELLER = Recipe(epochs=15, min_steps=600, learning_rate=3e-3)


def fit_steps(samples: int, options: GeneratorSettings) -> int:
    """Optimiser steps that fitting so many samples takes, for the estimate of the time left."""
    steps = total_steps(options, samples)
    if options.codes == "index" and options.assignment != "none":
        steps += total_steps(encoding.warm_up_recipe(options), samples)
    if options.labels == "labeller":
        steps += total_steps(_LABELLER, samples)
    return steps


def size_ratio(level: int, top_level: int) -> float:
    """The paper's size of model j relative to the largest, K: (7/8) · 2^(j - K) + 1/8."""
    return 7 / 8 * 2.0 ** (level - top_level) + 1 / 8


@torch.no_grad()
def label(labeller: nn.Module, images: Tensor) -> NDArray[np.int64]:
    """The most probable class of each uint8 image."""
    device = next(labeller.parameters()).device
    parts = [labeller(encoding.to_unit(block.to(device))).argmax(dim=1).cpu() for block in images.split(1024)]
    classes: NDArray[np.int64] = torch.cat(parts).numpy()
    return classes


def _fit_labeller(
    spec: networks.ClassifierSpec,
    images: Tensor,
    positions: NDArray[np.int64],
    *,
    generator: torch.Generator,
    progress: Progress,
    description: str,
) -> nn.Module:
    """f(x; θk), trained on the decoded images: exactly those it will be asked about."""
    device = choose_device()
    with seeded(generator):
        labeller = networks.classifier(spec).to(device)
    x, y = images.to(device), torch.from_numpy(positions).to(device)

    def loss(rows: Tensor) -> Tensor:
        rows = rows.to(device)
        return nn.functional.cross_entropy(labeller(encoding.to_unit(x[rows])), y[rows])

    fit(
        labeller, loss, len(y), _LABELLER,
        generator=generator, progress=progress, description=f"{description}, labeller",
    )  # fmt: skip
    _round_to_half(labeller)
    return labeller


def _errors(x: NDArray[np.uint8], replayed: Tensor) -> NDArray[np.float64]:
    """Mean squared error of each sample, pixels in [0, 1]."""
    difference = (x.astype(np.float32) - replayed.numpy().astype(np.float32)) / 255
    squares: NDArray[np.float64] = np.square(difference).reshape(len(x), -1).mean(axis=1, dtype=np.float64)
    return squares


def _round_to_half(network: nn.Module) -> None:
    """What is replayed now must be what is replayed after a restart: round to what the file keeps."""
    network.half().float().eval()
