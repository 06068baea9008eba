"""Everything that decides what a memory does with its samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from logcl.codecs.settings import GeneratorSettings, check_codes
from logcl.core.errors import BadSettings
from logcl.core.settings import (
    ClassifierSettings,
    Frozen,
    ImageShape,
    changed,
    check_size,
    described,
    parse_as,
)

PresetName = Literal["fast", "paper-cpu", "paper", "online", "offline"]


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
        check_codes(self.generator)
        used = {self.classifier.network}
        if self.generator.labels == "labeller":
            used.add(self.generator.labeller)
        for network in used:
            check_size(network, self.image_shape)
        return self


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


def parse(data: Mapping[str, Any]) -> Settings:
    """Settings from plain data; contradictions and unknown names become one sentence."""
    return parse_as(Settings, data)


def _names(settings: Settings) -> list[str]:
    return [name for name, _, _ in described(settings)]
