"""A local model: the samples of one slot, inside a decoder and either codes or nothing at all.

LocalModel.fit      samples → LocalModel
LocalModel.replay   LocalModel → samples
to_bytes, from_bytes    one safetensors blob, weights in half precision, nothing that can run code
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import FailFast, Field
from torch import Tensor, nn

from logcl.allocation import Slot
from logcl.codecs import bits as codes
from logcl.codecs import encoding, quantising
from logcl.codecs import labeller as labelling
from logcl.codecs.settings import NETWORKS, GeneratorSettings
from logcl.codecs.settings import Codes as CodeKind
from logcl.codecs.stored import BinaryCodes, Codes, IndexCodes, QuantisedCodes
from logcl.core.errors import BadSettings, Damaged
from logcl.core.images import squared_errors
from logcl.core.progress import Progress, Silent
from logcl.core.settings import MOST_SAMPLES, Frozen, Precision, parse_as
from logcl.memory.samples import Run, Samples, encoded, generations
from logcl.memory.settings import Settings
from logcl.nn import blobs, networks
from logcl.nn.training import Work, generator_for, shortened, total_steps

SAMPLES_A_BYTE = 8
"""A level holds at most so many: index codes and labellers cost nothing a sample, so that nothing else would
keep a few bytes from claiming any number."""


class Description(Frozen):
    """What a blob says of itself, beside its tensors."""

    level: int = Field(ge=0, le=62)
    start: int = Field(ge=1, lt=MOST_SAMPLES)
    stop: int = Field(ge=1, lt=MOST_SAMPLES)
    decoder: networks.AutoencoderSpec
    codes: CodeKind
    weights: Precision
    classes: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], FailFast()]
    """Class numbers that occur in this level; labels are positions in this tuple."""
    labeller: networks.ClassifierSpec | None
    runs: Annotated[tuple[Run, ...], FailFast()]
    first_code: int | None = Field(None, ge=1, lt=MOST_SAMPLES)
    """Whose index code the first sample has, if the level was moved since it was fitted."""

    @property
    def samples(self) -> int:
        """How many samples the level holds."""
        return self.stop - self.start + 1

    @property
    def coded_from(self) -> int:
        """Index whose code the first sample has."""
        return self.start if self.first_code is None else self.first_code

    @property
    def label_bits(self) -> int:
        """Bits of a stored label."""
        return codes.integer_bits(len(self.classes) - 1)


@dataclass(frozen=True)
class LocalModel:
    """Decoder and labels of one slot."""

    about: Description
    decoder: nn.Module
    codes: Codes
    labels: NDArray[np.int64] | nn.Module
    """Positions in `about.classes`, or the labeller that reads them off the decoded image."""
    analysis: nn.Module | None = None
    """What the codes were made with, if a later fit may begin with it."""

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
        slot: Slot,
        samples: Samples,
        settings: Settings,
        top_level: int,
        progress: Progress | None = None,
        start: LocalModel | None = None,
    ) -> tuple[LocalModel, NDArray[np.intp]]:
        """Train the model of `slot` on its samples, oldest first; `start` is the largest model there was.

        Also returns the order: position j of the slot now holds input sample order[j]. Stored codes keep
        the order; index codes permute samples within a run, because matching decides who gets which code.
        """
        options = settings.generator
        work = Work(
            generator_for(settings.seed, slot.level, slot.start, slot.stop),
            progress or Silent(),
            f"level {slot.level} ({len(samples):,} samples)",
        )
        ratio = size_ratio(slot.level, top_level, options.smallest)
        spec = networks.sized(decoder_spec(settings), ratio)
        result = _encode(slot, samples, spec, options, work, start)
        blobs.round_weights(result.decoder, options.weights)

        x, y = samples.x[result.order], samples.y[result.order]
        replayed = encoding.decode(result.decoder, result.codes, np.arange(len(x)), settings.image_shape)
        classes, positions = np.unique(y, return_inverse=True)
        labeller = None
        if options.labels == "labeller" and len(classes) > 1:
            labeller = networks.ClassifierSpec(
                network=options.labeller,
                image_shape=settings.image_shape,
                classes=len(classes),
                width=options.labeller_width,
            )
            labeller = networks.sized(labeller, ratio)
        about = Description(
            level=slot.level, start=slot.start, stop=slot.stop, decoder=spec, codes=options.codes,
            weights=options.weights, classes=tuple(int(c) for c in classes), labeller=labeller,
            runs=encoded(samples.runs, squared_errors(x, replayed.numpy())),
        )  # fmt: skip
        labels: NDArray[np.int64] | nn.Module = positions
        if labeller:
            recipe = options.labeller_training
            labels = labelling.trained(labeller, replayed, positions, recipe, work.part("labeller"))
        analysis = result.analysis if options.keep_encoder and slot.level == top_level else None
        if analysis is not None:
            blobs.round_weights(analysis, options.weights)
        return LocalModel(about, result.decoder, result.codes, labels, analysis), result.order

    def replay(self, indices: NDArray[np.integer[Any]] | None = None) -> tuple[Tensor, NDArray[np.int64]]:
        """Samples by global index, all of the slot by default: uint8 images on the CPU, class numbers."""
        if indices is None:
            indices = np.arange(self.about.start, self.about.stop + 1)
        rows = np.asarray(indices) - self.about.start
        images = encoding.decode(self.decoder, self.codes, rows, self.about.decoder.image_shape)
        labels = self.labels
        positions = labelling.read(labels, images) if isinstance(labels, nn.Module) else labels[rows]
        return images, np.asarray(self.about.classes, dtype=np.int64)[positions]

    def samples(self) -> Samples:
        """Everything this level holds, decoded, with its history."""
        images, y = self.replay()
        return Samples(images.numpy(), y, self.runs)

    def moved(self, start: int) -> LocalModel:
        """The same samples under other indices, from `start` on: what was before them is lost."""
        if start == self.about.start:
            return self
        moved = {"start": start, "stop": start + self.about.samples - 1, "first_code": self.about.coded_from}
        return replace(self, about=self.about.model_copy(update=moved))

    def to_bytes(self) -> bytes:
        """The blob that `from_bytes` reads; the same model always gives the same bytes."""
        tensors = blobs.weights(self.decoder, "decoder", self.about.weights) | self.codes.tensors()
        if self.analysis is not None:
            tensors |= blobs.weights(self.analysis, "analysis", self.about.weights)
        if isinstance(self.labels, nn.Module):
            tensors |= blobs.weights(self.labels, "labeller", "half")
        else:
            tensors["labels"] = torch.from_numpy(codes.pack_integers(self.labels, self.about.label_bits))
        return blobs.pack(self.about, tensors)

    @staticmethod
    def from_bytes(blob: bytes, name: str) -> LocalModel:
        """Read a blob; `name` is what messages call it. Refuses whatever does not fit its description."""
        about, tensors = blobs.unpack(blob, Description, name)
        _check(about, tensors, len(blob), name)
        decoder = blobs.restore(networks.decoder, about.decoder, tensors, "decoder", name)
        stored = _codes(about, tensors, name)
        labels: NDArray[np.int64] | nn.Module
        if about.labeller is not None:
            labels = blobs.restore(networks.classifier, about.labeller, tensors, "labeller", name)
        else:
            labels = codes.unpack_integers(tensors["labels"].numpy(), about.label_bits, about.samples)
            if labels.max() >= len(about.classes):
                raise Damaged(f"{name} has labels without a class; `logcl verify` says what is intact")
        analysis = None
        if any(key.startswith("analysis.") for key in tensors):
            if about.codes != "quantised" or about.decoder.network == "cosine":
                raise Damaged(f"{name} has an encoder that its codes do not need; `logcl verify` says more")
            analysis = blobs.restore(quantising.Analysis, about.decoder, tensors, "analysis", name)
        return LocalModel(about, decoder, stored, labels, analysis)


def decoder_spec(settings: Settings) -> networks.AutoencoderSpec:
    """The decoder of the largest level."""
    options = settings.generator
    length = options.symbols if options.codes == "quantised" else options.bits
    if options.codes == "quantised" and options.bytes_per_sample is not None:
        # With less than some bits for each, all symbols are rounded to zero before any is given up.
        length = min(length, math.ceil(3 * options.bytes_per_sample))
    width = options.width
    if options.network == "cosine":
        length, width = networks.coefficient_count(settings.image_shape), 1
    return parse_as(
        networks.AutoencoderSpec,
        {"network": options.network, "image_shape": settings.image_shape, "length": length, "width": width},
    )


def _encode(
    slot: Slot,
    samples: Samples,
    spec: networks.AutoencoderSpec,
    options: GeneratorSettings,
    work: Work,
    start: LocalModel | None,
) -> encoding.Encoding:
    """Samples to a decoder and codes, in the way that the settings ask for."""
    if options.codes == "binary":
        return encoding.learned(samples.x, spec, options, work)
    if options.codes == "quantised":
        if spec.network == "cosine":
            return quantising.cosine_coded(samples.x, spec, options, work, start.decoder if start else None)
        begin = None
        if start is not None and options.warm_start and start.about.decoder == spec:
            begin = quantising.Start(start.decoder, start.analysis)
        return quantising.trained(samples.x, spec, options, work, begin, generations(samples.runs) < 0)
    if slot.stop >> spec.code_length:
        raise BadSettings(f"{slot.stop} samples need codes of more than generator.bits = {options.bits} bits")
    if len(samples) > SAMPLES_A_BYTE * networks.weight_count(spec):
        raise BadSettings(
            f"{len(samples)} samples are more than {SAMPLES_A_BYTE} for each weight of their decoder; such a "
            f"memory needs a larger generator.width"
        )
    given = _index_codes(slot.start, spec)
    if spec.network == "superposed":
        return encoding.superposed(samples.x, given, spec, options, work)
    groups = [run.count for run in samples.runs]
    return encoding.assigned(samples.x, given, groups, spec, options, work)


def _index_codes(start: int, spec: networks.AutoencoderSpec) -> IndexCodes:
    return IndexCodes(start, spec.code_length, spec.length if spec.network == "superposed" else 0)


def _codes(about: Description, tensors: dict[str, Tensor], name: str) -> Codes:
    """The codes of a blob that `_check` found sound."""
    spec = about.decoder
    if about.codes == "index":
        return _index_codes(about.coded_from, spec)
    if about.codes == "binary":
        return BinaryCodes(tensors["codes"].numpy(), spec.length)
    return QuantisedCodes.restore(tensors, about.samples, networks.codes_an_image(spec), spec.length, name)


def _check(about: Description, tensors: dict[str, Tensor], size: int, name: str) -> None:
    """Refuse a description that its tensors do not bear out."""

    def is_bytes(tensor: str, *shape: int) -> bool:
        found = tensors.get(tensor)
        return found is not None and found.dtype == torch.uint8 and found.shape == shape

    spec = about.decoder
    cosines = about.codes == "quantised" and spec.length == networks.coefficient_count(spec.image_shape)
    row, packed = -(-spec.code_length // 8), -(-about.samples * about.label_bits // 8)
    last_code = about.coded_from + about.samples - 1
    errors = [error for run in about.runs for error in run.errors]
    labelled = about.labeller is None or about.labeller.image_shape == spec.image_shape
    for sound, problem in (
        (about.samples >= 1 and about.start >= 1 and about.coded_from >= 1, "holds no samples"),
        (about.samples <= SAMPLES_A_BYTE * size, "claims more samples than its bytes can hold"),
        (sum(run.count for run in about.runs) == about.samples, "has a history of another length"),
        (all(run.count >= 1 and run.errors for run in about.runs), "has a history with gaps"),
        (all(0 <= error <= _LARGEST_ERROR for error in errors), "has a history of impossible errors"),
        (bool(about.classes), "has no classes"),
        (len(set(about.classes)) == len(about.classes), "has a class twice"),
        (spec.network in NETWORKS[about.codes], "has codes that its decoder cannot read"),
        (about.codes != "index" or not last_code >> spec.code_length, "has more samples than codes"),
        (about.codes != "binary" or is_bytes("codes", about.samples, row), "has codes of another size"),
        (spec.network != "cosine" or cosines, "has codes that its decoder cannot read"),
        (about.labeller is not None or is_bytes("labels", packed), "has labels of another size"),
        (labelled, "labels images of another shape"),
        (about.labeller is None or about.labeller.classes == len(about.classes), "labels other classes"),
    ):
        if not sound:
            raise Damaged(f"{name} {problem}; `logcl verify` says what is intact")


_LARGEST_ERROR = 1.001  # between black and white, and room for rounding


def fit_steps(samples: int, classes: int, options: GeneratorSettings, *, warm: bool = False) -> int:
    """Optimiser steps that fitting so many samples of so many classes takes, to estimate the time left.

    `warm`: whether there is another level to begin with.
    """
    if warm and options.warm_start and options.keep_encoder:
        options = shortened(options, options.warm_share)
    steps = 1 if options.network == "cosine" else total_steps(options, samples)
    if encoding.has_warm_up(options):
        steps += total_steps(encoding.warm_up_recipe(options), samples)
    if options.labels == "labeller" and classes > 1:
        steps += total_steps(options.labeller_training, samples)
    return steps


def size_ratio(level: int, top_level: int, smallest: float = 1 / 8) -> float:
    """The size of model j relative to the largest, K; in the paper (7/8) · 2^(j - K) + 1/8."""
    return (1 - smallest) * 2.0 ** (level - top_level) + smallest
