"""The base of all settings, training recipes and classifier settings, with their meanings and defaults."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from logcl.core.errors import BadSettings

MOST_VALUES = 2**26
"""Values per image: more than 4096x4096 in colour, 256 MB as float32."""
MOST_SAMPLES = 2**62
"""Sample indices stay below this, so that the sum of two fits 64 bits."""


_LONGEST_ROW = 16_383  # values of a sample that is one row: features


def _checked_shape(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    channels, height, width = shape
    widest = _LONGEST_ROW if channels == height == 1 else 4096
    sides = 1 <= channels <= 64 and 1 <= height <= 4096 and 1 <= width <= widest and height * width > 1
    if not sides or math.prod(shape) > MOST_VALUES:
        raise ValueError(
            f"image_shape = {shape} is not supported; use 1 to 64 channels, height and width up to 4096, "
            f"at least two pixels and at most 2^26 values in total"
        )
    return shape


ImageShape = Annotated[tuple[int, int, int], AfterValidator(_checked_shape)]
"""Channels, height, width."""

ImageFit = Literal["crop", "pad", "stretch"]
"""How images of another aspect ratio get the shape of a memory."""

AutoencoderNetwork = Literal["mlp", "conv", "binplay", "superposed"]
_LARGEST_INPUT = 2**22  # values of an image of a backbone; activations are many times as many
MOST_ADDRESS_BITS = 20
"""The largest table of a `superposed` decoder has 2^20 rows."""
Precision = Literal["int8", "half"]
ClassifierNetwork = Literal["convnet", "mlp", "lenet", "resnet18", "linear", "hidden"]
_MOST_NAMES = 1000  # per group of settings


class Frozen(BaseModel):
    """Immutable settings; unknown names are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _few_names(cls, data: Any) -> Any:
        # In a forged file, one error per unknown name could take gigabytes.
        if isinstance(data, dict) and len(data) > _MOST_NAMES:
            raise ValueError(f"{len(data)} names are too many; there can be at most {_MOST_NAMES}")
        return data


Kind = TypeVar("Kind", bound=Frozen)


class Recipe(Frozen):
    """Hyperparameters of one training run, for `training.fit`."""

    epochs: int = Field(20, ge=1, le=100_000)
    """Epochs."""
    min_steps: int = Field(0, ge=0, le=10_000_000)
    """Minimum number of optimiser steps: small levels need more epochs than large ones."""
    batch_size: int = Field(128, ge=1, le=1_000_000)
    """Samples per optimiser step."""
    optimiser: Literal["adam", "sgd", "muon"] = "adam"
    """`adam`; `sgd` with Nesterov momentum; `muon`: orthogonal updates of filters, `adam` for the rest."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of `sgd`, where 0 is plain gradient descent, and of `muon`."""
    learning_rate: float = Field(1e-3, gt=0)
    """The highest learning rate of the schedule."""
    schedule: Literal["constant", "one-cycle", "exponential"] = "one-cycle"
    """How the learning rate changes: not at all, up and down once, or by the factor `decay` per epoch."""
    decay: float = Field(0.99, gt=0, le=1)
    """Factor per epoch, for the exponential schedule."""
    patience: int = Field(0, ge=0, le=100_000)
    """Early stopping: once the loss has not fallen by 1 % for this many epochs, the learning rate decays to
    zero within a quarter of the steps so far. 0: no early stopping."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay; decoupled from the gradient with `adam` (AdamW)."""


class BackboneSpec(Frozen):
    """A frozen, pretrained network whose features φ(x) a memory holds instead of the images x."""

    name: str = Field(max_length=200)
    """`efficientnet-lite0`, or a model of timm."""
    weights: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of its weights."""
    image_shape: ImageShape
    """Channels, height, width of the images it takes."""
    mean: tuple[Annotated[float, Field(ge=-1e6, le=1e6)], ...] = Field(max_length=64)
    """Subtracted from each channel, pixels in [0, 1]."""
    std: tuple[Annotated[float, Field(ge=1e-6, le=1e6)], ...] = Field(max_length=64)
    """What each channel is then divided by."""
    features: int = Field(ge=2, le=4096)
    """Features per image."""
    scale: float = Field(ge=2.0**-64, le=2.0**64)
    """Features of about this size are stored as exactly as smaller ones; see `core.features`."""

    @property
    def sample_shape(self) -> ImageShape:
        """The features of an image, stored like an image of one row."""
        return 1, 1, self.features

    def row(self, thumbnails: int) -> ImageShape:
        """The same with a thumbnail of this side behind them."""
        return 1, 1, self.features + 3 * thumbnails**2

    @model_validator(mode="after")
    def _one_per_channel(self) -> BackboneSpec:
        if not len(self.mean) == len(self.std) == self.image_shape[0]:
            raise ValueError("mean and std need one number per channel")
        if math.prod(self.image_shape) > _LARGEST_INPUT:
            raise ValueError(f"images of a backbone have at most {_LARGEST_INPUT:,} values")
        return self


class BasicSettings(Frozen):
    """Settings of every memory, independent of its codec."""

    preset: str
    """Preset that the settings were derived from."""
    image_shape: ImageShape
    """Channels, height, width of the samples in the memory: images, or features as images of one row."""
    fit: ImageFit = "stretch"
    """How image files of another aspect ratio get this shape: `crop` to the middle, `pad` with the colour of
    their edges, or `stretch`, as in files from before there was a choice."""
    backbone: BackboneSpec | None = None
    """The network that computes the features; None: the memory holds images."""
    thumbnails: int = Field(0, ge=0, le=64)
    """Side of the small picture that is kept beside the features of each sample; 0: none."""
    unit: int = Field(512, ge=1, le=2**40)
    """L: samples of a level-0 model; up to L - 1 of the newest samples wait in the buffer."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Decides initial weights, order and noise: the same seed gives the same bytes."""

    @property
    def seen_shape(self) -> ImageShape:
        """Channels, height, width of what a classifier sees: without thumbnails."""
        return self.image_shape if self.backbone is None else self.backbone.sample_shape

    @property
    def input_shape(self) -> ImageShape:
        """Channels, height, width of the images that users give: those of the backbone, if there is one."""
        return self.image_shape if self.backbone is None else self.backbone.image_shape


class ClassifierSettings(Recipe):
    """The global model, trained on replay of the whole memory."""

    network: ClassifierNetwork | Literal["head"] = "convnet"
    """`convnet`: small and fast; `mlp`: for tiny images; `lenet`, `resnet18`: as published; for features
    `linear`, `hidden` (one hidden layer), or `head`, the better one."""
    width: int = Field(16, ge=1, le=4096)
    """Channels of the first convolutions; an eighth of the hidden units for `mlp`."""
    noise: float = Field(0.15, ge=0, le=1)
    """Standard deviation of the white noise added to replayed images (the paper's aug)."""
    mirror: bool | Literal["auto"] = False
    """Random horizontal flips: right for photographs, wrong for writing; `auto`: the first task decides."""
    average_mirrored: bool = False
    """Average predictions over each image and its mirror image, if it was trained with both."""
    shift: int = Field(0, ge=0, le=64)
    """Random shifts by up to this many pixels."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Fraction of a label's weight that is spread over all classes."""
    warm_start: bool = False
    """Start retraining from the last global model, if it is the same network, instead of from random weights.
    For many small tasks, where short retraining after each adds up."""
    warm_share: float = Field(1.0, gt=0, le=1)
    """Fraction of the epochs and steps that a warm start takes."""


def check_size(network: str, image_shape: ImageShape) -> None:
    """Refuse images that are too small for the strides of a network."""
    _, height, width = image_shape
    if network == "lenet" and min(height, width) < 8:
        raise ValueError(
            f"network = lenet needs images of at least 8x8, not {height}x{width}; use convnet or mlp"
        )


def changed(
    settings: Frozen | dict[str, Any], changes: Mapping[str, Any]
) -> tuple[dict[str, Any], str | None]:
    """Settings as plain data with dotted names changed, and the first unknown name or None."""
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


def parse_as(kind: type[Kind], data: Mapping[str, Any]) -> Kind:
    """Settings of the given class from plain data; raises `BadSettings`."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'settings'}: "
            + problem["msg"].removeprefix("Value error, ")
            for problem in error.errors()
        )
        raise BadSettings(f"the settings are invalid: {problems}") from error


def described(settings: Frozen, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Dotted name, value and meaning (one line) of every setting."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Frozen):
            yield from described(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, " ".join((field.description or "").split())
