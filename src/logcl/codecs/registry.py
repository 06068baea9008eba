"""Codecs by name: those of this package by their file, others by the entry-point group `logcl.codecs`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from pkgutil import iter_modules
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from logcl import codecs
from logcl.codecs.base import AutoSettings, Codec, CodecSettings, CodecSpec
from logcl.core.descriptions import damaged, description
from logcl.core.errors import BadSettings
from logcl.core.text import printable
from logcl.nn import blobs

GROUP = "logcl.codecs"


def names() -> list[str]:
    """All codecs that can be used here."""
    return sorted(_all())


def find(name: str) -> type[Codec]:
    """The codec of this name; those of this package cannot be replaced from outside."""
    codec = _all().get(str(name))
    if isinstance(codec, EntryPoint):
        try:
            codec = codec.load()
        except Exception as error:  # whatever another package raises
            raise BadSettings(
                f"codec {name!r} of {codec.value} cannot be imported ({printable(error)}); repair or remove "
                f"the package that provides it"
            ) from error
    if codec is None:
        raise BadSettings(
            f"there is no codec {printable(str(name)[:100])!r} here; install the package that provides it, "
            f"or choose one of: {', '.join(names())}"
        )
    return codec


@cache
def _all() -> dict[str, type[Codec] | EntryPoint]:
    own = {module.name: _in_file(module.name) for module in iter_modules(codecs.__path__)}
    others = {point.name: point for point in entry_points(group=GROUP)}
    return {**others, **{name: codec for name, codec in own.items() if codec is not None}}


def _in_file(name: str) -> type[Codec] | None:
    """The codec that `codecs/<name>.py`, or the package `codecs/<name>/`, defines, if it does."""
    module = import_module(f"{codecs.__name__}.{name}")
    for value in vars(module).values():
        own = isinstance(value, type) and f"{value.__module__}.".startswith(f"{module.__name__}.")
        if own and issubclass(value, Codec):
            return None if isabstract(value) else value
    return None


def _name(data: Any) -> str:
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str):
        raise ValueError("a codec must have a name")
    return name


def _settings(data: Any) -> CodecSettings:
    return data if isinstance(data, CodecSettings) else settings_of(_name(data)).model_validate(data)


def settings_of(name: str) -> type[CodecSettings]:
    """The settings of a codec, or those by which one is chosen."""
    return AutoSettings if name == "auto" else find(name).Settings


def _spec(data: Any) -> CodecSpec:
    return data if isinstance(data, CodecSpec) else find(_name(data)).Spec.model_validate(data)


AnySettings = Annotated[SerializeAsAny[CodecSettings], BeforeValidator(_settings)]
"""Settings of the codec that their `name` says."""
AnySpec = Annotated[SerializeAsAny[CodecSpec], BeforeValidator(_spec)]
"""Spec of the codec that its `name` says."""


def from_bytes(blob: bytes, name: str) -> Codec:
    """The codec that `Codec.to_bytes` stored; `name` is what an error message calls it."""
    try:
        kind = find(_name(description(blob, name)))
    except ValueError as error:
        raise damaged(name, error) from error
    spec, weights = blobs.unpack(blob, kind.Spec, name)
    codec = kind.restore(spec, weights, name)
    if strange := set(weights) - set(codec.weights()):
        raise damaged(name, ValueError(f"nothing reads its tensor {min(strange)[:100]}"))
    return codec
