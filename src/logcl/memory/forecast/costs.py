"""What a sample costs: seconds and bytes as they were measured, for images of any shape.

`costs.json` beside this file is what `bench/scale.py` measured, with the machine and the command.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib import resources

from pydantic import Field

from logcl.core.errors import BadSettings
from logcl.core.settings import AutoencoderNetwork, ClassifierNetwork, Frozen, ImageShape
from logcl.memory.settings import Settings


class CodecCosts(Frozen):
    """Of images of one shape inside local models; seconds are those of one core."""

    image_shape: ImageShape
    network: AutoencoderNetwork
    """What encodes and decodes them."""
    images: str
    """What was measured."""
    fits: tuple[tuple[int, float], ...] = Field(min_length=1)
    """Samples of a level and seconds to fit it, ascending; there was another level to begin with."""
    decode_seconds: float = Field(gt=0)
    """To decode a sample of a level that is decoded whole."""
    fetch_seconds: float = Field(gt=0)
    """The same where batches of samples are drawn at random, as the global model needs them."""
    sample_bytes: float = Field(gt=0)
    """Code and label, in the memory file."""
    level_bytes: float = Field(ge=0)
    """What a level takes beside its samples: decoder, tables, history."""
    ram_bytes: float = Field(gt=0)
    """Most bytes of main memory that absorbing takes for each sample it fits."""

    def fit_seconds(self, samples: int) -> float:
        """To fit a level: on a line between two measurements, in proportion beyond the largest."""
        (most, longest), first = self.fits[-1], self.fits[0]
        if samples >= most:
            return longest * samples / most
        if samples <= first[0]:
            return first[1]
        above = next(i for i, (count, _) in enumerate(self.fits) if count > samples)
        (low, a), (high, b) = self.fits[above - 1], self.fits[above]
        return a + (b - a) * (samples - low) / (high - low)

    def scaled(self, image_shape: ImageShape) -> CodecCosts:
        """For images of another shape: what belongs to a sample in proportion to its values."""
        ratio = math.prod(image_shape) / math.prod(self.image_shape)
        return self.model_copy(
            update={
                "image_shape": image_shape,
                "fits": tuple((samples, ratio * seconds) for samples, seconds in self.fits),
                "decode_seconds": ratio * self.decode_seconds,
                "fetch_seconds": ratio * self.fetch_seconds,
                "sample_bytes": ratio * self.sample_bytes,
                "ram_bytes": ratio * self.ram_bytes,
            }
        )


class ClassifierCosts(Frozen):
    """Of training the global model on images of one shape."""

    image_shape: ImageShape
    network: ClassifierNetwork
    width: int
    weights: int = Field(ge=1)
    """Numbers that are trained; there were a hundred classes."""
    pass_seconds: float = Field(gt=0)
    """To learn from one sample once, on one core, the image being decoded already."""

    def scaled(self, image_shape: ImageShape) -> ClassifierCosts:
        """For images of another shape: seconds in proportion to their values, as many weights."""
        ratio = math.prod(image_shape) / math.prod(self.image_shape)
        return self.model_copy(update={"image_shape": image_shape, "pass_seconds": ratio * self.pass_seconds})


class FileCosts(Frozen):
    """Of the memory file on one disk."""

    commit_seconds: float = Field(gt=0)
    """Of a commit that writes next to nothing: its syncs."""
    commit_rate: float = Field(gt=0)
    """Bytes of new levels a second that a commit writes, with their digests, in place of as many old ones."""
    commit_disk: float = Field(ge=1)
    """Most bytes on the disk during such a commit, for each byte that the file has after it."""
    load_rate: float = Field(gt=0)
    """Bytes a second of a memory that is opened: read and checked."""


class Machine(Frozen):
    """Where and with what all of it was measured."""

    command: str
    date: str
    processor: str
    cores: int
    python: str
    torch: str
    numpy: str
    sqlite: str


class Measured(Frozen):
    """All that is in `costs.json`."""

    machine: Machine
    file: FileCosts
    codecs: tuple[CodecCosts, ...]
    classifiers: tuple[ClassifierCosts, ...]


class Costs(Frozen):
    """Of one memory: all that a forecast needs to know of it, beside how many samples come."""

    codec: CodecCosts
    classifier: ClassifierCosts
    file: FileCosts
    passes: int = Field(ge=1)
    """Of the global model over all samples."""
    batch_size: int = Field(ge=1)


@lru_cache(maxsize=1)
def measured() -> Measured:
    """What `bench/scale.py` found."""
    text = resources.files("logcl.memory.forecast").joinpath("costs.json").read_text(encoding="utf-8")
    return Measured.model_validate_json(text)


def costs_of(settings: Settings, found: Measured | None = None) -> Costs:
    """The costs of a memory with these settings: those measured on the most similar images, to scale.

    Of several kinds of images of the same shape, the one that takes the most bytes.
    """
    found = found or measured()
    shape, generator, classifier = settings.image_shape, settings.generator, settings.classifier
    if generator.codes != "quantised":
        raise BadSettings(
            f"what codes = {generator.codes} cost was not measured; a forecast needs preset fast, or codes = "
            f"quantised"
        )
    codecs = [row for row in found.codecs if row.network == generator.network]
    classifiers = [row for row in found.classifiers if row.width == classifier.width] or found.classifiers
    codec = min(codecs, key=lambda row: (_distance(row.image_shape, shape), -row.sample_bytes))
    return Costs(
        codec=codec.scaled(shape),
        classifier=min(classifiers, key=lambda row: _distance(row.image_shape, shape)).scaled(shape),
        file=found.file,
        passes=classifier.epochs,
        batch_size=classifier.batch_size,
    )


def _distance(one: ImageShape, other: ImageShape) -> float:
    """How many times larger one image is than the other, as a logarithm."""
    return abs(math.log(math.prod(one) / math.prod(other)))
