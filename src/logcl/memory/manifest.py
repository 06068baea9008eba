"""What the header of a memory file says about the memory: its size, classes, settings and notes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from logcl.core.errors import BadSettings, Damaged
from logcl.core.inputs import Labels
from logcl.core.settings import MOST_SAMPLES, BackboneSpec, Frozen
from logcl.core.sizes import ImageSize
from logcl.core.text import printable
from logcl.memory.choosing import Choice
from logcl.memory.file.header import Header
from logcl.memory.settings import Settings, override

Note = Annotated[str, Field(max_length=2**22)]


class Manifest(Frozen):
    """The header of a memory, beside the digests of its parts."""

    n: int = Field(ge=0, lt=MOST_SAMPLES)
    """Samples held."""
    last: int = Field(ge=0, lt=MOST_SAMPLES)
    """Index of the newest sample that ever arrived; levels are those of this many samples."""
    classes: Labels
    settings: Settings
    choice: Choice | None = None
    """What was measured on the first task; None if all was given, or not measured yet."""
    notes: Annotated[dict[Annotated[str, Field(max_length=100)], Note], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Texts that the creator of the memory keeps in it; the memory itself reads none of them."""

    @model_validator(mode="before")
    @classmethod
    def _nothing_forgotten(cls, data: Any) -> Any:
        # Up to format 3 no sample could be missing.
        return {**data, "last": data.get("n")} if isinstance(data, dict) and "last" not in data else data

    def as_data(self) -> dict[str, Any]:
        """Plain data for the header; without notes and choice if there are none."""
        empty = {name for name in ("notes", "choice") if not getattr(self, name)}
        return self.model_dump(mode="json", exclude=empty)

    @staticmethod
    def of(header: Header, path: Path) -> Manifest:
        """Read it from a header; `path` is for the error message."""
        try:
            return Manifest.model_validate(header.fields)
        except ValidationError as error:
            problem = error.errors()[0]
            if isinstance(cause := problem.get("ctx", {}).get("error"), BadSettings):  # its codec is missing
                raise BadSettings(f"{path}: {cause}") from error
            where = printable(".".join(map(str, problem["loc"])))
            raise Damaged(
                f"{path}: the header cannot be used ({where}: {printable(problem['msg'])}); `logcl verify` "
                f"says what is intact"
            ) from error

    def check_agrees(
        self,
        path: Path,
        size: ImageSize | None,
        preset: str | None,
        changes: Mapping[str, Any],
        backbone: BackboneSpec | str | None = None,
        thumbnails: int = 0,
    ) -> None:
        """Refuse what a caller asks for unless the memory at `path` has it; of a backbone, maybe the name."""
        has = self.settings
        if backbone is not None and backbone not in (has.backbone, has.backbone and has.backbone.name):
            raise BadSettings(
                f"{path} holds {_held(has.backbone)}, not {_held(backbone)}; use another memory"
            )
        if thumbnails not in (0, has.thumbnails):
            kept = f"thumbnails of {has.thumbnails} pixels" if has.thumbnails else "no thumbnails"
            raise BadSettings(f"{path} keeps {kept}, not of {thumbnails}; leave the size out")
        if size is not None and not size.allows(has.input_shape):
            raise BadSettings(
                f"{path} is for images of shape {has.input_shape}, not {size.shape(has.input_shape[0])}; "
                f"leave out the image shape, to which image files are resized, or use another memory"
            )
        if preset is not None and preset != has.preset:
            raise BadSettings(f"{path} was made with preset {has.preset}, not {preset}; leave preset out")
        choice = self.choice or Choice()
        if choice.asked is not None and changes.get("codec.name", "auto") == "auto":
            has = has.model_copy(update={"codec": choice.asked})
        if choice.mirror is not None and changes.get("classifier.mirror") == "auto":
            has = override(has, {"classifier.mirror": "auto"})
        if override(has, changes) != has:
            asked = ", ".join(f"{name} = {value}" for name, value in changes.items())
            raise BadSettings(f"{path} has other settings than {asked}; they are fixed when it is created")


def _held(backbone: BackboneSpec | str | None) -> str:
    if backbone is None:
        return "images"
    if isinstance(backbone, str):
        return f"features of {printable(backbone)}"
    shape = "x".join(map(str, backbone.image_shape))
    return f"features of {printable(backbone.name)} with weights {backbone.weights[:8]} for images {shape}"
