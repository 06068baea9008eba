"""A stream of images as a stream of the features that a backbone computes of them, once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from logcl.core.progress import Progress
from logcl.nn.backbones import Backbone
from logcl.streams import Stream, Task
from logcl.streams.cache import Blueprint, cached

_PIECE = 1024  # images at once


def featured(stream: Stream, backbone: Backbone, progress: Progress) -> Stream:
    """The same stream with features (n, 1, 1, D) in place of images; they are cached."""
    train, test = stream.source_x, stream.test_x
    spec = backbone.spec

    def fill(parts: Mapping[str, Task]) -> None:
        with progress.track("computing features", len(train) + len(test)) as advance:
            for name, images in (("train", train), ("test", test)):
                part = parts[name]
                part.y[:] = stream.source_y if name == "train" else stream.test_y
                for start in range(0, len(images), _PIECE):
                    piece = images[start : start + _PIECE]
                    part.x[start : start + len(piece)] = backbone.samples(piece, progress)
                    advance(len(piece))

    def plan() -> Blueprint:
        return Blueprint(stream.classes, spec.sample_shape, {"train": len(train), "test": len(test)}, fill)

    mark = hashlib.sha256(spec.model_dump_json().encode())
    for images in (train, test):
        mark.update(_content(images))
    found = cached(f"features-{mark.hexdigest()[:24]}", mark.hexdigest()[:16], plan)
    assert found.test is not None  # it was planned
    return replace(stream, source_x=found.train.x, test_x=found.test.x)


def _content(images: NDArray[np.uint8]) -> bytes:
    """A digest of images, which may be a memory map of any size."""
    found = hashlib.sha256(repr(images.shape).encode())
    for start in range(0, len(images), _PIECE):
        found.update(np.ascontiguousarray(images[start : start + _PIECE]).data)
    return found.digest()
