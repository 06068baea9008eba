"""Every choice a user can make, with its meaning and its default. Unknown names are errors.

A `Settings` is complete: `presets.preset` resolves it for an image shape when the memory is created, and the
resolved values are kept in the memory file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from logcl.core.errors import BadSettings

MOST_VALUES = 2**26
"""Numbers in an image: 4096x4096 in colour with room to spare, 256 MB as floats."""
MOST_SAMPLES = 2**62
"""Sample indices stay below this, so that sums of two still fit 64 bits."""


def _checked_shape(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    channels, height, width = shape
    sides = 1 <= channels <= 64 and 1 <= height <= 4096 and 1 <= width <= 4096 and height * width > 1
    if not sides or math.prod(shape) > MOST_VALUES:
        raise ValueError(
            f"image_shape = {shape} is not (channels up to 64, height and width up to 4096), "
            f"with at least two pixels and at most 2^26 values in all"
        )
    return shape


ImageShape = Annotated[tuple[int, int, int], AfterValidator(_checked_shape)]
"""Channels, height, width."""

PresetName = Literal["fast", "paper-cpu", "paper", "online", "offline"]
AutoencoderNetwork = Literal["mlp", "conv", "cosine", "binplay", "superposed"]
MOST_ADDRESS_BITS = 20
"""The largest table of a `superposed` decoder has 2^20 rows."""
Codes = Literal["quantised", "binary", "index"]
Precision = Literal["int8", "half"]
ClassifierNetwork = Literal["convnet", "mlp", "lenet", "resnet18"]
_MOST_NAMES = 1000  # in one group of a description; a file that has more is no mistake to be listed by name


class Frozen(BaseModel):
    """Settings are values: they do not change, and a misspelt name is refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _few_names(cls, data: Any) -> Any:
        # An error for each of a million unknown names would take gigabytes.
        if isinstance(data, dict) and len(data) > _MOST_NAMES:
            raise ValueError(f"{len(data)} names are more than anything here has")
        return data


Kind = TypeVar("Kind", bound=Frozen)


class Recipe(Frozen):
    """How one network is trained: all that `training.fit` needs to know."""

    epochs: int = Field(20, ge=1, le=100_000)
    """Passes over the samples."""
    min_steps: int = Field(0, ge=0, le=10_000_000)
    """At least so many optimiser steps: a level of few samples needs more passes than a large one."""
    batch_size: int = Field(128, ge=1, le=1_000_000)
    """Samples in one optimiser step."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """`adam`, or `sgd` with Nesterov's momentum."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Of `sgd`; 0 is the plain gradient."""
    learning_rate: float = Field(1e-3, gt=0)
    """The highest rate of the schedule."""
    schedule: Literal["constant", "one-cycle", "exponential"] = "one-cycle"
    """How the rate changes: not at all, up and down once, or by the factor `decay` a pass."""
    decay: float = Field(0.99, gt=0, le=1)
    """Factor a pass, for the exponential schedule."""
    patience: int = Field(0, ge=0, le=100_000)
    """After so many passes in which the loss did not fall by one per cent, the rate goes to zero within a
    quarter of the steps made so far, and training ends. 0: not before its time."""
    weight_decay: float = Field(0.0, ge=0)
    """Shrinks the weights a little in each step; with Adam apart from the gradient, as AdamW does."""


class GeneratorSettings(Recipe):
    """The local models: a decoder, and the codes and labels it is given."""

    network: AutoencoderNetwork = "mlp"
    """`mlp`: one hidden layer; `conv`: planes; `cosine`: a transform, not trained; `binplay`: as published;
    `superposed`: rows of a table that several samples share."""
    width: int = Field(256, ge=1, le=65_536)
    """Hidden units (`mlp`), numbers in a row (`superposed`) or channels of the largest level; smaller levels
    get fewer. `cosine` has none."""
    weights: Precision = "int8"
    """How a decoder's weights are kept: a byte each and a scale a row, or in half precision."""
    codes: Codes = "quantised"
    """`quantised`: integers, entropy coded; `binary`: learned bits, packed; `index`: computed from the sample
    index, nothing is kept."""
    bytes_per_sample: float | None = Field(None, gt=0, le=2**30)
    """Quantised codes: bytes of a sample's code, on average. Either this or `psnr` is set."""
    psnr: float | None = Field(None, gt=0, le=40)
    """Quantised codes: quality of a sample's first encoding in dB, 10 · log10(1 / mean squared error)."""
    symbols: int = Field(64, ge=1, le=65_536)
    """Quantised codes of `mlp` and `conv`: integers in a code, at most three a byte asked for; those not
    worth their bytes stay zero."""
    bits: int = Field(256, ge=1, le=65_536)
    """Binary and index codes: length of a code; for `superposed` of its address, so that the table has 2^bits
    rows at every level."""
    smallest: float = Field(1 / 8, gt=0, le=1)
    """Share of the largest level's weights that the smallest ones tend to; 1: all levels are alike."""
    warm_start: bool = True
    """Whether a level begins with the networks of the largest one, if it has as many weights."""
    keep_encoder: bool = False
    """Quantised codes of `mlp` and `conv`: whether the largest level keeps what its codes were made with, so
    that later fits begin with it too."""
    warm_share: float = Field(1.0, gt=0, le=1)
    """Share of the passes and steps that such a fit takes."""
    labels: Literal["stored", "labeller"] = "stored"
    """`stored`: packed integers; `labeller`: the paper's local f(x; θk) applied to the decoded image."""
    warm_up_epochs: int = Field(10, ge=1, le=100_000)
    """Index codes only: passes of the autoencoder before samples are assigned to codes."""
    warm_up_learning_rate: float = Field(1e-3, gt=0)
    """Index codes only: the highest rate of these passes."""
    pull: float = Field(10.0, ge=0)
    """Index codes only: weight of the distance between an embedding and its nearest free code."""
    assignment: Literal["greedy", "optimal", "none"] = "greedy"
    """Index codes only: how samples are matched with codes. `optimal` is cubic in the samples of a level."""
    labeller: ClassifierNetwork = "mlp"
    """Labeller only: its network, one of the classifier's."""
    labeller_width: int = Field(8, ge=1, le=4096)
    """Labeller only: as `classifier.width`, at the largest level; smaller levels get less."""
    labeller_training: Recipe = Recipe(epochs=15, min_steps=600, learning_rate=3e-3)
    """Labeller only: how it is trained on the decoded images."""


class ClassifierSettings(Recipe):
    """The global model, trained on replay of the whole memory."""

    network: ClassifierNetwork = "convnet"
    """`convnet`: small and fast; `mlp`: for tiny images; `lenet`, `resnet18`: the published ones."""
    width: int = Field(16, ge=1, le=4096)
    """Channels of the first convolutions, or an eighth of the hidden units (`mlp`)."""
    noise: float = Field(0.15, ge=0, le=1)
    """Standard deviation of the white noise added to replayed images (the paper's aug)."""
    mirror: bool = False
    """Whether images may be seen in a mirror: right for photographs, wrong for writing."""
    shift: int = Field(0, ge=0, le=64)
    """Images are moved by up to so many pixels."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of a label's weight that is spread over all classes."""
    warm_start: bool = False
    """Whether retraining begins with the last global model, if that is the same network, instead of random
    weights. For many small tasks: brief retraining after each adds up."""
    warm_share: float = Field(1.0, gt=0, le=1)
    """Share of the passes and steps that such a retraining takes."""


class Settings(Frozen):
    """All that decides what a memory does with its samples."""

    preset: PresetName = "fast"
    """Where these settings started from."""
    image_shape: ImageShape
    """Channels, height, width."""
    unit: int = Field(512, ge=1, le=2**40)
    """L: samples in a level-0 model; up to L - 1 of the newest samples wait in the buffer."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Decides initial weights, order and noise: the same seed, the same bytes."""
    generator: GeneratorSettings = GeneratorSettings()
    classifier: ClassifierSettings = ClassifierSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        _check_codes(self.generator)
        used = {self.classifier.network}
        if self.generator.labels == "labeller":
            used.add(self.generator.labeller)
        for network in used:
            check_size(network, self.image_shape)
        return self


NETWORKS: dict[Codes, tuple[AutoencoderNetwork, ...]] = {
    "quantised": ("mlp", "conv", "cosine"),
    "binary": ("mlp", "conv"),
    "index": ("mlp", "binplay", "superposed"),
}
"""The decoders that read a kind of code."""


def check_size(network: ClassifierNetwork, image_shape: ImageShape) -> None:
    """Refuse images that a classifier would halve to nothing."""
    _, height, width = image_shape
    if network == "lenet" and min(height, width) < 8:
        raise ValueError(f"network = lenet needs images of at least 8x8, not {height}x{width}")


def _check_codes(generator: GeneratorSettings) -> None:
    """Refuse codes that the network cannot read, or a target that says nothing or two things."""
    if generator.network not in NETWORKS[generator.codes]:
        fit = " or ".join(NETWORKS[generator.codes])
        raise ValueError(f"codes = {generator.codes} needs network = {fit}, not {generator.network}")
    if generator.network == "superposed" and generator.bits > MOST_ADDRESS_BITS:
        raise ValueError(f"network = superposed needs bits up to {MOST_ADDRESS_BITS}, for 2^bits rows")
    targets = [name for name in ("bytes_per_sample", "psnr") if getattr(generator, name) is not None]
    if generator.codes == "quantised" and len(targets) != 1:
        raise ValueError("codes = quantised needs either generator.bytes_per_sample or generator.psnr")
    if generator.codes != "quantised" and targets:
        raise ValueError(
            f"generator.{targets[0]} is for codes = quantised; codes = {generator.codes} have generator.bits"
        )


def override(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """`settings` with dotted names changed, e.g. {"generator.epochs": 50, "unit": 1000}.

    Values may be strings, as they come from a command line. Of two settings that say the same thing in two
    ways (the quality of a code, or its bytes), the one given replaces the other. `bits` is the size of a
    code whatever its kind: an eighth of a quantised code's bytes, or the length of the others.
    """
    data = settings.model_dump()
    if "bits" in changes:
        changes = dict(changes)
        kind = changes.get("generator.codes", settings.generator.codes)
        value = changes.pop("bits")
        same = "generator.bits" if kind != "quantised" else "generator.bytes_per_sample"
        if same in changes:
            raise BadSettings(f"bits and {same} say the same thing; give only one of them")
        if kind != "quantised":
            changes[same] = value
        else:
            try:
                changes[same] = float(value) / 8
            except (TypeError, ValueError) as error:
                raise BadSettings(f"bits is {value!r}; give a number") from error
    kind = changes.get("generator.codes", "quantised")
    for one, other in (("psnr", "bytes_per_sample"), ("bytes_per_sample", "psnr")):
        if f"generator.{one}" in changes or kind != "quantised":
            data["generator"][other] = None
    for name in ("preset", "image_shape"):
        if name in changes:
            raise BadSettings(f"{name} cannot be changed like a setting; it has an argument of its own")
    data, wrong = changed(data, changes)
    if wrong is not None:
        raise BadSettings(f"there is no setting {wrong!r}; the settings are: {', '.join(_names(settings))}")
    return parse(data)


def changed(
    settings: Frozen | dict[str, Any], changes: Mapping[str, Any]
) -> tuple[dict[str, Any], str | None]:
    """Plain data of settings with dotted names changed, and the first name that there is not."""
    data = settings.model_dump() if isinstance(settings, Frozen) else settings
    for name, value in changes.items():
        *path, last = name.split(".")
        group: Any = data
        for part in path:
            group = group.get(part) if isinstance(group, dict) else None
        if not isinstance(group, dict) or last not in group:
            return data, name
        if isinstance(group[last], dict) and not isinstance(value, (dict, Frozen)):
            return data, name
        is_list = isinstance(group[last], tuple) and isinstance(value, str)
        group[last] = value.split(",") if is_list else value
    return data, None


def parse(data: Mapping[str, Any]) -> Settings:
    """Settings from plain data; contradictions and unknown names become one sentence."""
    return parse_as(Settings, data)


def parse_as(kind: type[Kind], data: Mapping[str, Any]) -> Kind:
    """Settings of any kind from plain data, as `parse`."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'settings'}: "
            + problem["msg"].removeprefix("Value error, ")
            for problem in error.errors()
        )
        raise BadSettings(f"these settings cannot be used: {problems}") from error


def _names(settings: Settings) -> list[str]:
    return [name for name, _, _ in described(settings)]


def described(settings: Frozen, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every setting by its dotted name, with its value and its meaning in a line."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Frozen):
            yield from described(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, " ".join((field.description or "").split())
