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

AutoencoderNetwork = Literal["mlp", "conv", "binplay", "superposed"]
MOST_ADDRESS_BITS = 20
"""The largest table of a `superposed` decoder has 2^20 rows."""
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
    """Shard of a label's weight that is spread over all classes."""
    warm_start: bool = False
    """Whether retraining begins with the last global model, if that is the same network, instead of random
    weights. For many small tasks: brief retraining after each adds up."""
    warm_share: float = Field(1.0, gt=0, le=1)
    """Shard of the passes and steps that such a retraining takes."""


def check_size(network: ClassifierNetwork, image_shape: ImageShape) -> None:
    """Refuse images that a classifier would halve to nothing."""
    _, height, width = image_shape
    if network == "lenet" and min(height, width) < 8:
        raise ValueError(f"network = lenet needs images of at least 8x8, not {height}x{width}")


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


def described(settings: Frozen, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every setting by its dotted name, with its value and its meaning in a line."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Frozen):
            yield from described(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, " ".join((field.description or "").split())
