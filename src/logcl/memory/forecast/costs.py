"""Seconds and bytes per sample, as measured by `bench/scale.py` and stored in `costs.json`."""

from __future__ import annotations

import math
from functools import lru_cache
from importlib import resources
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from logcl.core.errors import BadSettings
from logcl.core.settings import Frozen, ImageShape


class CodecCosts(Frozen):
    """Costs of one codec on images of one shape. Seconds are those of one core."""

    image_shape: ImageShape
    codec: str
    network: str | None = None
    """The network of an autoencoder."""
    images: str
    """The images that were measured."""
    fits: tuple[tuple[int, float], ...] = Field(min_length=1)
    """(samples, seconds) of fitting a level with a warm start from another one, ascending."""
    encode_seconds: float | None = Field(None, gt=0)
    """Per new sample, if a fit copies the codes of merged levels; `fits` then only copy."""
    decode_seconds: float = Field(gt=0)
    """Per sample, when a whole level is decoded."""
    fetch_seconds: float = Field(gt=0)
    """Per sample, when batches are drawn at random, as the global model needs them."""
    sample_bytes: float = Field(gt=0)
    """Code and label of a sample in the memory file."""
    level_bytes: float = Field(ge=0)
    """The rest of a level: decoder, tables, history."""
    ram_bytes: float = Field(gt=0)
    """Peak main memory of `absorb` per sample that it fits."""

    def fit_seconds(self, samples: int) -> float:
        """Seconds to fit a level: interpolated between measurements, proportional beyond the largest."""
        counts, seconds = np.array(self.fits).T
        return float(np.interp(samples, counts, seconds) * max(samples / counts[-1], 1))


class ClassifierCosts(Frozen):
    """Costs of training the global model on images of one shape."""

    image_shape: ImageShape
    network: str
    width: int
    weights: int = Field(ge=1)
    """Trained parameters, for 100 classes."""
    train_seconds: float = Field(gt=0)
    """Per sample and epoch on one core, with the image already decoded."""


Row = TypeVar("Row", CodecCosts, ClassifierCosts)
_PER_SAMPLE = (
    "encode_seconds",
    "decode_seconds",
    "fetch_seconds",
    "sample_bytes",
    "ram_bytes",
    "train_seconds",
)


class Measured(Frozen):
    """The content of `costs.json`."""

    machine: dict[str, str | int]
    """Command, date, processor and versions."""
    codecs: tuple[CodecCosts, ...]
    classifiers: tuple[ClassifierCosts, ...]


class Costs(Frozen):
    """The costs of one memory."""

    codec: CodecCosts
    classifier: ClassifierCosts


@lru_cache(maxsize=1)
def measured() -> Measured:
    """The costs in `costs.json`."""
    text = resources.files("logcl.memory.forecast").joinpath("costs.json").read_text(encoding="utf-8")
    return Measured.model_validate_json(text)


def pick_costs(
    image_shape: ImageShape,
    codec: str | None,
    network: str | None = None,
    classifier_width: int | None = None,
    found: Measured | None = None,
) -> Costs:
    """The costs measured on images of the most similar size, scaled to `image_shape`.

    Where several kinds of images of that size were measured, those that take the most bytes. If `codec` is
    None, it is the one that `costs.json` has first for that size: the one that is usually chosen.
    """
    found = found or measured()

    def distance(row: CodecCosts | ClassifierCosts) -> float:
        return abs(math.log(math.prod(row.image_shape) / math.prod(image_shape)))

    codec = codec or min(found.codecs, key=distance).codec
    codecs = [row for row in found.codecs if row.codec == codec and network in (None, row.network)]
    if not codecs:
        known = " or ".join(sorted({row.codec for row in found.codecs}))
        raise BadSettings(f"the costs of codec {codec} were not measured; a forecast needs codec {known}")
    classifiers = [row for row in found.classifiers if row.width == classifier_width] or found.classifiers
    return Costs(
        codec=_scaled(min(codecs, key=lambda row: (distance(row), -row.sample_bytes)), image_shape),
        classifier=_scaled(min(classifiers, key=distance), image_shape),
    )


def _scaled(row: Row, image_shape: ImageShape) -> Row:
    """The costs for another image shape: what belongs to a sample grows with the values of its image."""
    ratio = math.prod(image_shape) / math.prod(row.image_shape)
    update: dict[str, Any] = {name: ratio * value for name, value in row if name in _PER_SAMPLE and value}
    if isinstance(row, CodecCosts):
        update["fits"] = tuple((samples, ratio * seconds) for samples, seconds in row.fits)
    return row.model_copy(update={"image_shape": image_shape, **update})
