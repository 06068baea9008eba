"""The size of a network, and the same network scaled to a fraction of that size."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

import torch

from logcl.nn.networks.autoencoders import AutoencoderSpec, decoder
from logcl.nn.networks.classifiers import ClassifierSpec, classifier

Spec = TypeVar("Spec", AutoencoderSpec, ClassifierSpec)


@lru_cache(maxsize=4096)
def weight_count(spec: AutoencoderSpec | ClassifierSpec) -> int:
    """Number of trainable weights of a decoder or classifier, without allocating them."""
    with torch.device("meta"):
        network = decoder(spec) if isinstance(spec, AutoencoderSpec) else classifier(spec)
    return sum(parameter.numel() for parameter in network.parameters())


def sized(spec: Spec, ratio: float) -> Spec:
    """The same network with the largest width that has at most `ratio` times the weights.

    The width is at least 1 and at most that of `spec`. The ratio applies to weights rather than widths,
    because the weights of convolutions grow with the square of the width.
    """
    return spec.model_copy(update={"width": _width(spec, ratio)})


@lru_cache(maxsize=4096)
def _width(spec: AutoencoderSpec | ClassifierSpec, ratio: float) -> int:
    if ratio >= 1:
        return spec.width
    allowed = ratio * weight_count(spec)
    low, high = 1, spec.width + 1  # low is narrow enough, or the narrowest; high is too wide
    while high - low > 1:
        middle = (low + high) // 2
        if weight_count(spec.model_copy(update={"width": middle})) <= allowed:
            low = middle
        else:
            high = middle
    return low
