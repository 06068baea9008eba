"""Everything that decides what a memory does with its samples.

`Settings` is complete: `presets.preset` resolves it for an image shape when a memory is created, and the
resolved values are stored in the memory file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import model_validator

from logcl.codecs import registry
from logcl.codecs.labeller import LabelSettings
from logcl.codecs.registry import AnySettings
from logcl.core.errors import BadSettings
from logcl.core.settings import BasicSettings, ClassifierSettings, changed, check_size, described, parse_as
from logcl.memory import upgrade

_TARGETS = ("psnr", "bytes_per_sample", "step")
PresetName = Literal["fast", "paper-cpu", "paper", "online", "offline"]


class Settings(BasicSettings):
    """All settings of a memory."""

    preset: PresetName = "fast"
    """Preset that the settings were derived from."""
    codec: AnySettings
    """How images become codes; each codec has its own settings."""
    labels: LabelSettings = LabelSettings()
    """How levels know the labels of their samples."""
    classifier: ClassifierSettings = ClassifierSettings()

    @model_validator(mode="before")
    @classmethod
    def _upgraded(cls, data: Any) -> Any:
        return upgrade.settings(data) if isinstance(data, Mapping) and "generator" in data else data

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        check_size(self.classifier.network, self.image_shape)
        if self.labels.kind == "labeller":
            check_size(self.labels.network, self.image_shape)
        if self.backbone is not None and self.image_shape != self.backbone.row(self.thumbnails):
            raise ValueError(
                f"image_shape = {self.image_shape} is not that of {self.backbone.features} features"
            )
        return self


def override(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """`settings` with dotted names changed, e.g. {"codec.psnr": 28, "unit": 1000}.

    Values may be strings, as they come from a command line. Of two settings that say the same thing in two
    ways (the quality of a code, or its bytes), the one given replaces the other. "codec.name" chooses a
    codec, with its own settings for these images.
    """
    data = settings.model_dump()
    changes = dict(changes)
    name = changes.pop("codec.name", settings.codec.name)
    if name != settings.codec.name:
        kind = registry.settings_of(name)
        data["codec"] = kind.for_images(settings.image_shape).model_dump()
        if settings.classifier.noise == type(settings.codec).noise(settings.image_shape):
            data["classifier"]["noise"] = kind.noise(settings.image_shape)
    if any(f"codec.{target}" in changes for target in _TARGETS):
        data["codec"] |= {target: None for target in _TARGETS if target in data["codec"]}
    for fixed in ("preset", "image_shape", "backbone", "thumbnails"):
        if any(name.partition(".")[0] == fixed for name in changes):
            raise BadSettings(f"{fixed} cannot be changed like a setting; it has its own argument")
    data, wrong = changed(data, changes)
    if wrong is not None:
        every = [name for name, _, _ in described(parse(data))]
        group = wrong.partition(".")[0] + "."
        near = [name for name in every if name.startswith(group)] or every
        of = f" for codec {data['codec']['name']}" if group == "codec." else ""
        raise BadSettings(f"there is no setting {wrong!r}{of}; choose one of: {', '.join(near)}")
    return parse(data)


def applicable(settings: Settings, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes without those that only other codecs have, e.g. epochs where nothing is trained."""
    known = {name for name, _, _ in described(settings)}
    return {name: value for name, value in changes.items() if name in known or not name.startswith("codec.")}


def parse(data: Mapping[str, Any]) -> Settings:
    """Settings from plain data; contradictions and unknown names become one sentence."""
    return parse_as(Settings, data)
