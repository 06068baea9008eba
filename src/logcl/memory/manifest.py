"""What the header of a memory file says of the memory: its size, classes, settings and notes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from logcl.core.errors import Damaged
from logcl.core.inputs import Labels
from logcl.core.settings import Frozen
from logcl.core.text import printable
from logcl.memory.file.header import Header
from logcl.memory.settings import Settings

Note = Annotated[str, Field(max_length=2**22)]


class Fields(Frozen):
    """What the header of the file says of the memory, beside its parts."""

    n: int = Field(ge=0, lt=2**62)
    classes: Labels
    settings: Settings
    notes: Annotated[dict[Annotated[str, Field(max_length=100)], Note], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Texts that whoever made the memory keeps in it; the memory itself reads none of them."""

    def as_data(self) -> dict[str, Any]:
        """For the header: without notes if there are none, as headers were before there could be any."""
        return self.model_dump(mode="json", exclude=None if self.notes else {"notes"})

    @staticmethod
    def of(header: Header, path: Path) -> Fields:
        """Read them off a header; `path` is for the message if that fails."""
        try:
            return Fields.model_validate(header.fields)
        except ValidationError as error:
            problem = error.errors()[0]
            where = printable(".".join(map(str, problem["loc"])))
            raise Damaged(f"{path}: the header cannot be used ({where}: {problem['msg']})") from error
