"""A local model: the samples of one slot, as a codec, their codes and their labels.

LocalModel.fit      samples → LocalModel
LocalModel.replay   LocalModel → samples
to_bytes, from_bytes    one safetensors blob, which refers to the blob of the codec's weights by digest
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.allocation import Slot
from logcl.codecs import labeller as labelling
from logcl.codecs import registry
from logcl.codecs.base import Codec, Codes, Encoded, FitInput, Fitted, size_ratio
from logcl.codecs.coding import bits
from logcl.codecs.registry import AnySpec
from logcl.core.descriptions import described
from logcl.core.errors import Damaged
from logcl.core.images import rows_at_once, squared_errors
from logcl.core.progress import Progress, Silent
from logcl.core.settings import ImageShape
from logcl.core.text import printable
from logcl.memory import claims, upgrade
from logcl.memory.samples import LevelHistory, Run, Samples, encoded, joined, selected
from logcl.memory.settings import Settings
from logcl.nn import blobs, networks
from logcl.nn.training import Work, generator_for

SAMPLES_PER_BYTE = 8
"""At most this many samples per byte of a level: where neither code nor label takes any bytes, a small file
could otherwise claim any number of samples."""
_LARGEST_ERROR = 1.001  # between black and white, and room for rounding


class Description(LevelHistory):
    """What the blob of a level says about itself, beside its tensors."""

    codec: AnySpec
    labeller: networks.ClassifierSpec | None

    @property
    def label_bits(self) -> int:
        """Bits of a stored label."""
        return bits.integer_bits(len(self.classes) - 1)


@dataclass(frozen=True)
class LocalModel:
    """The samples of one slot."""

    about: Description
    codec: Codec
    codes: Codes
    labels: NDArray[np.int64] | nn.Module
    """Positions in `about.classes`, or the labeller that reads them off the decoded image."""
    indices: NDArray[np.int64]
    """Sample indices (n,), ascending."""

    @property
    def slot(self) -> Slot:
        """The level and the sample indices it has room for."""
        return self.about.slot

    @property
    def runs(self) -> tuple[Run, ...]:
        """The history of the samples, oldest first."""
        return self.about.runs

    def __len__(self) -> int:
        return len(self.indices)

    @staticmethod
    def fit(
        slot: Slot,
        new: Samples,
        settings: Settings,
        top_level: int,
        progress: Progress | None = None,
        starts: Sequence[Codec] = (),
        merged: Sequence[LocalModel] = (),
    ) -> tuple[LocalModel, NDArray[np.intp]]:
        """Fit the model of `slot` to the samples of merged levels, oldest first, and new ones after them.

        starts: codecs of other levels, the most similar first. Also returns the order: row j now holds input
        sample order[j]. Most codecs keep the order; index codes permute samples within a run, because
        matching decides which image gets which code.
        """
        indices = np.concatenate([*(level.indices for level in merged), new.indices])
        work = Work(
            generator_for(settings.seed, slot.level, slot.start, slot.stop),
            progress or Silent(),
            f"level {slot.level} ({len(indices):,} samples)",
        )
        old = [run for level in merged for run in level.runs]
        given = FitInput(
            new.x, indices, [run.count for run in (*old, *new.runs)], slot.level, top_level,
            [Encoded(level.codec, level.codes) for level in merged],
        )  # fmt: skip
        fitted = registry.find(settings.codec.name).fit(given, settings.codec, work, starts)
        codec, order = fitted.codec, fitted.order
        if fitted.kept:
            errors = _errors(fitted, new.x, len(given) - len(new), work.part("decoding"))
            runs = joined([*old, *encoded(new.runs, errors)])
        else:
            runs = encoded([*old, *new.runs], _errors(fitted, given.x, 0, work.part("decoding")))
        y = np.concatenate([*(level.class_numbers() for level in merged), new.y])
        classes, positions = np.unique(y[order], return_inverse=True)
        ratio = size_ratio(slot.level, top_level, settings.labels.smallest)
        about = Description(
            level=slot.level, start=slot.start, stop=slot.stop, samples=len(indices), codec=codec.spec,
            weights=_weights_digest(codec), classes=tuple(classes.tolist()),
            labeller=settings.labels.labeller(settings.image_shape, len(classes), ratio), runs=runs,
        )  # fmt: skip
        labels: NDArray[np.int64] | nn.Module = positions
        if about.labeller:
            recipe = settings.labels.training
            replayed = codec.decode(fitted.codes, np.arange(len(indices)))
            labels = labelling.trained(about.labeller, replayed, positions, recipe, work.part("labeller"))
        return LocalModel(about, codec, fitted.codes, labels, indices), order

    def rows(self, indices: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
        """Rows of the samples with these indices, all of which must be in this level."""
        return np.searchsorted(self.indices, indices)

    def replay(self, indices: NDArray[np.integer[Any]] | None = None) -> tuple[Tensor, NDArray[np.int64]]:
        """Samples by index, by default all: uint8 images (m, C, H, W) on the CPU, class numbers (m,)."""
        rows = np.arange(len(self)) if indices is None else self.rows(indices)
        images = self.codec.decode(self.codes, rows)
        if isinstance(self.labels, nn.Module):
            assert self.about.labeller is not None
            return images, self._class_numbers[labelling.read(self.labels, self.about.labeller, images)]
        return images, self._class_numbers[self.labels[rows]]

    def class_numbers(self) -> NDArray[np.int64]:
        """Class numbers of all samples (n,); a labeller has to decode the images for them."""
        if isinstance(self.labels, nn.Module):
            blocks = np.array_split(self.indices, -(-len(self) // rows_at_once(self.about.codec.shape)))
            return np.concatenate([self.replay(block)[1] for block in blocks])
        return self._class_numbers[self.labels]

    @cached_property
    def _class_numbers(self) -> NDArray[np.int64]:
        return np.array(self.about.classes, dtype=np.int64)

    def samples(self, progress: Progress | None = None) -> Samples:
        """Everything this level holds, decoded, with its history."""
        parts = []
        with (progress or Silent()).track(f"replaying level {self.slot.level}", len(self)) as advance:
            for rows in _blocks(len(self), self.about.codec.shape):
                parts.append(self.replay(self.indices[rows]))
                advance(len(rows))
        images, y = torch.cat([x for x, _ in parts]), np.concatenate([y for _, y in parts])
        return Samples(images.numpy(), y, self.indices, self.runs)

    def select(self, rows: NDArray[np.integer[Any]]) -> LocalModel:
        """Some of the samples, ascending; the codes and labels of the others are gone."""
        labels = self.labels if isinstance(self.labels, nn.Module) else self.labels[rows]
        about = self.about.model_copy(update={"samples": len(rows), "runs": selected(self.runs, rows)})
        return replace(
            self, about=about, codes=self.codes.select(rows), labels=labels, indices=self.indices[rows]
        )

    def coarsen(self, factor: int = 2) -> LocalModel:
        """The same samples in fewer bytes: a larger error, but not another generation."""
        codes = self.codec.coarsen(self.codes, factor)
        every = np.arange(len(self))
        before, after = self.codec.decode(self.codes, every), self.codec.decode(codes, every)
        runs = encoded(self.runs, squared_errors(before.numpy(), after.numpy()), coarsened=True)
        return replace(self, about=self.about.model_copy(update={"runs": runs}), codes=codes)

    def for_training(self) -> LocalModel:
        """The same samples, decoded as a classifier learns most from them."""
        return replace(self, codec=self.codec.for_training())

    def moved(self, start: int) -> LocalModel:
        """The same samples with new indices, from `start` on, for a memory that lost samples before them."""
        by = start - self.about.start
        about = self.about.model_copy(update={"start": start, "stop": self.about.stop + by})
        return replace(self, about=about, indices=self.indices + by)

    def to_bytes(self) -> bytes:
        """The blob of the level, without the codec's weights; the same model always gives the same bytes."""
        # Up to format 3, weights were inside the level: it does not refer to them yet.
        about = self.about.model_copy(update={"weights": _weights_digest(self.codec)})
        tensors = {f"codes.{key}": value for key, value in self.codes.tensors().items()}
        if isinstance(self.labels, nn.Module):
            tensors |= blobs.weights(self.labels, "labeller", "half")
        else:
            tensors["labels"] = torch.from_numpy(bits.pack_integers(self.labels, self.about.label_bits))
        tensors |= live_mask(self.slot, self.indices)
        labeller, shape = self.about.labeller is not None, self.about.codec.shape
        claimed, at_once = claim(self.about.codec.model_dump(), self.slot.samples, shape, labeller=labeller)
        stored = sum(tensor.nbytes for tensor in (*tensors.values(), *self.codec.weights().values()))
        if missing := claims.missing_bytes(claimed + at_once, stored):
            tensors["padding"] = torch.zeros(missing, dtype=torch.uint8)  # or a reader would refuse the file
        return blobs.pack(about, tensors)

    @staticmethod
    def from_bytes(blob: bytes, codecs: Mapping[str, Codec], name: str) -> LocalModel:
        """Read the blob of a level; `codecs` by the digest of their weights; `name` is for error messages.

        Whatever does not fit its description is refused as `Damaged`.
        """
        data, tensors = blobs.load(blob, name)
        if "codec" not in data:  # up to format 3, weights were part of the level
            data, tensors, weights = upgrade.level(data, tensors, name)
            about = described(Description, data, name)
            codec = registry.find(about.codec.name).restore(about.codec, weights, name)
        else:
            about = described(Description, data, name)
            codec = _codec(about, codecs, name)
        size = len(blob) + sum(tensor.nbytes for tensor in codec.weights().values())
        _check(about, size, name)
        indices = live_indices(about.slot, about.samples, tensors, name)
        stored = {key[6:]: value for key, value in tensors.items() if key.startswith("codes.")}
        codes = codec.restore_codes(stored, indices, size, name)
        _check_names(tensors, codes, about, name)
        labels: NDArray[np.int64] | nn.Module
        if about.labeller is not None:
            labels = blobs.restore(networks.classifier, about.labeller, tensors, "labeller", name)
        else:
            labels = _stored_labels(about, tensors, name)
        return LocalModel(about, codec, codes, labels, indices)


def _blocks(count: int, image_shape: ImageShape) -> list[NDArray[np.intp]]:
    """Rows in blocks of bounded size."""
    at_once = rows_at_once(image_shape)
    return [np.arange(start, min(start + at_once, count)) for start in range(0, count, at_once)]


def _errors(fitted: Fitted, x: NDArray[np.uint8], first: int, work: Work) -> NDArray[np.float64]:
    """Mean squared error of each image from input number `first` on, in blocks, of which each is a step."""
    blocks, errors = _blocks(len(x), fitted.codec.spec.shape), []
    with work.progress.track(work.description, len(blocks)) as advance:
        for rows in blocks:
            replayed = fitted.codec.decode(fitted.codes, first + rows).numpy()
            errors.append(squared_errors(x[fitted.order[first + rows] - first], replayed))
            advance()
    return np.concatenate([*errors, np.empty(0)])


def claim(
    spec: Mapping[str, Any], samples: int, image_shape: ImageShape, *, labeller: bool
) -> tuple[int, int]:
    """Bytes that a level with this codec claims, and those that decoding one of its samples takes.

    spec: as it is in a file, not checked. A labeller reads all images at once.
    """
    name = spec.get("name")
    if name not in registry.names():
        return claims.of_samples(samples, image_shape), 0
    codec = registry.find(str(name))
    weight = claims.COPIED if codec.copies_codes and not labeller else 1
    effort = codec.effort(spec, image_shape)
    return claims.of_samples(samples, image_shape, weight, effort), claims.at_once(image_shape, weight)


def live_mask(slot: Slot, indices: NDArray[np.int64]) -> dict[str, Tensor]:
    """One bit per sample index of a slot, set if that sample is held; nothing if all of them are."""
    if len(indices) == slot.samples:
        return {}
    mask = np.zeros(slot.samples, dtype=np.uint8)
    mask[indices - slot.start] = 1
    return {"live": torch.from_numpy(np.packbits(mask, bitorder="little"))}


def live_indices(slot: Slot, samples: int, tensors: Mapping[str, Tensor], name: str) -> NDArray[np.int64]:
    """The inverse of `live_mask`: sample indices."""
    if "live" not in tensors:
        if samples != slot.samples:
            raise Damaged(f"{name} does not say which samples it holds; `logcl verify` says what is intact")
        return np.arange(slot.start, slot.stop + 1)
    mask = tensors["live"]
    if mask.dtype != torch.uint8 or mask.shape != (-(-slot.samples // 8),):
        raise Damaged(f"{name} has a mask of another size; `logcl verify` says what is intact")
    indices = slot.start + np.flatnonzero(np.unpackbits(mask.numpy(), count=slot.samples, bitorder="little"))
    if len(indices) != samples:
        raise Damaged(f"{name} holds another number of samples; `logcl verify` says what is intact")
    return indices


def _weights_digest(codec: Codec) -> str | None:
    return hashlib.sha256(codec.to_bytes()).hexdigest() if codec.weights() else None


def _codec(about: Description, codecs: Mapping[str, Codec], name: str) -> Codec:
    if about.weights is None:
        return registry.find(about.codec.name).restore(about.codec, {}, name)
    if about.weights not in codecs:
        raise Damaged(f"{name} needs weights that are missing; `logcl verify` says what is intact")
    codec = codecs[about.weights]
    if codec.spec != about.codec:
        raise Damaged(f"{name} needs other weights than it refers to; `logcl verify` says what is intact")
    return codec


def _stored_labels(about: Description, tensors: Mapping[str, Tensor], name: str) -> NDArray[np.int64]:
    packed = tensors.get("labels")
    size = -(-about.samples * about.label_bits // 8)
    if packed is None or packed.dtype != torch.uint8 or packed.shape != (size,):
        raise Damaged(f"{name} has labels of another size; `logcl verify` says what is intact")
    labels = bits.unpack_integers(packed.numpy(), about.label_bits, about.samples)
    if labels.max() >= len(about.classes):
        raise Damaged(f"{name} has labels without a class; `logcl verify` says what is intact")
    return labels


def _check_names(tensors: Mapping[str, Tensor], codes: Codes, about: Description, name: str) -> None:
    """Refuse tensors that nothing reads: they would justify samples that are not there."""
    known = {f"codes.{key}" for key in codes.tensors()} | {"live", "padding"}
    known.add("labels" if about.labeller is None else "labeller.")
    for key in tensors:
        if key not in known and key[: key.find(".") + 1] not in known:
            strange = printable(key)[:100]
            raise Damaged(
                f"{name} has a tensor {strange} that nothing reads; `logcl verify` says what is intact"
            )


def _check(about: Description, size: int, name: str) -> None:
    """Refuse a description that contradicts itself or the size of its blobs."""
    errors = [error for run in about.runs for error in run.errors]
    labeller = about.labeller
    for sound, problem in (
        (about.samples <= about.slot.samples, "holds more samples than it has room for"),
        (about.slot.samples <= SAMPLES_PER_BYTE * size, "claims more samples than its bytes can hold"),
        (sum(run.count for run in about.runs) == about.samples, "has a history of another length"),
        (all(run.count >= 1 and run.errors for run in about.runs), "has a history with gaps"),
        (all(0 <= run.generation < len(run.errors) for run in about.runs), "has impossible generations"),
        (all(0 <= error <= _LARGEST_ERROR for error in errors), "has a history of impossible errors"),
        (bool(about.classes), "has no classes"),
        (len(set(about.classes)) == len(about.classes), "has a class twice"),
        (labeller is None or labeller.image_shape == about.codec.shape, "labels images of another shape"),
        (labeller is None or labeller.classes == len(about.classes), "labels other classes"),
    ):
        if not sound:
            raise Damaged(f"{name} {problem}; `logcl verify` says what is intact")


def fit_steps(samples: int, classes: int, settings: Settings, *, warm: bool = False) -> int:
    """Steps that a fit reports; `warm`: whether there is another level to start from."""
    steps = registry.find(settings.codec.name).steps(settings.codec, samples, warm=warm)
    return steps + len(_blocks(samples, settings.image_shape)) + settings.labels.steps(samples, classes)
