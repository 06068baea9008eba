"""The description at the head of a blob: JSON inside the header of a safetensors file. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from logcl.core.errors import Damaged
from logcl.core.settings import Frozen
from logcl.core.text import printable

About = TypeVar("About", bound=Frozen)
LONGEST = 2**22
"""Maximum bytes of a description: enough for a hundred thousand named classes."""


def description(blob: bytes, name: str) -> dict[str, Any]:
    """The description of a blob as plain data; `Damaged` if there is none."""
    try:
        size = int.from_bytes(blob[:8], "little")
        # Not Python's own parser, whose recursion nested brackets exhaust.
        found = from_json(blob[8 : 8 + size])["__metadata__"]["logcl"]
        if len(found) > LONGEST:
            raise ValueError(f"a description of {len(found):,} characters")
        return dict(from_json(found))
    except (ValueError, LookupError, TypeError) as error:
        raise damaged(name, error) from error


def described(kind: type[About], data: Mapping[str, Any], name: str) -> About:
    """A description from plain data, or `Damaged`."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise damaged(name, error) from error


def damaged(name: str, error: Exception) -> Damaged:
    """An error that says what is wrong with the blob called `name`."""
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        error = ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}")
    reason = " ".join(str(error).split())[:200]
    return Damaged(printable(f"{name} is damaged ({reason}); `logcl verify` says what is intact"))
