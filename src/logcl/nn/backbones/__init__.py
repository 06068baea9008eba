"""Backbones: frozen, pretrained networks that turn images into features φ(x).

    images ── resize, crop ── normalise ── network ── features (n, D) ── core.features ── bytes (n, 1, 1, D)

`efficientnet-lite0` comes with its weights from a Python package; every model of timm works by its name, with
weights from a file or from timm's cache. A memory names its backbone and a digest of the weights, and is used
with no other: features of another network mean something else.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from logcl.core.errors import BadSettings, DataError
from logcl.core.settings import BackboneSpec, ImageShape
from logcl.core.sizes import shape_text
from logcl.core.text import printable
from logcl.nn.backbones import weights as stored
from logcl.nn.backbones.backbone import Backbone, fitted, frozen
from logcl.nn.backbones.models import BUILT_IN, parts

__all__ = ["BUILT_IN", "Backbone", "fitted", "found", "load", "matching", "named"]


def load(name: str, weights: str | Path | None = None, image_shape: ImageShape | None = None) -> Backbone:
    """A backbone by name.

    name: `efficientnet-lite0`, or a model of timm. weights: a file, .safetensors or .pth; by default those of
    the package, or timm's pretrained ones. image_shape: another size of images than the usual one.
    """
    network, usual, mean, std = parts(name, None if weights is None else Path(weights))
    if image_shape is not None and image_shape[0] != usual[0]:
        raise BadSettings(f"the backbone {name} takes images of {usual[0]} channels, not {image_shape[0]}")
    shape = image_shape or usual
    try:
        found = Backbone.of(network, shape, name=name, mean=mean, std=std)
    except (AssertionError, RuntimeError, TypeError) as error:  # what networks of fixed sizes raise
        reason = printable(" ".join(str(error).split())[:150])
        raise BadSettings(
            f"the backbone {printable(name)} takes no images of {shape_text(shape)} ({reason}); it usually "
            f"takes {shape_text(usual)}"
        ) from error
    if weights is not None:
        stored.keep(network, found.spec.weights)
    return found


def named(text: str, image_shape: ImageShape | None = None) -> Backbone:
    """The backbone that NAME or NAME=FILE says, FILE with its weights."""
    name, _, file = text.partition("=")
    return load(name, file or None, image_shape)


def found(spec: BackboneSpec, given: Backbone | None) -> Backbone:
    """The backbone of a memory: the one that a user gave, if it is the right one, or else by its name."""
    return given if given is not None and given.spec == spec else matching(spec)


@lru_cache(maxsize=2)
def matching(spec: BackboneSpec) -> Backbone:
    """The backbone of a memory, with just these weights."""
    kept = stored.place(spec.weights)
    try:
        network, *_ = parts(spec.name, kept if kept.exists() else None)
    except (BadSettings, DataError) as error:
        raise BadSettings(
            f"the features were computed by {printable(spec.name)}, which cannot be had here ({error})"
        ) from error
    network = frozen(network)
    if stored.digest(network) != spec.weights:
        raise BadSettings(
            f"the features were computed by {printable(spec.name)} with other weights than those found here; "
            f"give the file with --backbone {printable(spec.name)}=FILE"
        )
    return Backbone(spec, network)
