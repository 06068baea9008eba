"""Decoders, encoders, labellers and classifiers, each built from a small frozen description."""

from bisect import bisect_right
from functools import lru_cache
from typing import TypeVar

import torch

from logcl.nn.networks.autoencoders import AutoencoderSpec, decoder, encoder
from logcl.nn.networks.classifiers import ClassifierSpec, classifier
from logcl.nn.networks.layers import ImageClassifier
from logcl.nn.networks.superposed import SuperposedDecoder, hidden_units, latent_numbers, superpose

__all__ = [
    "AutoencoderSpec", "ClassifierSpec", "ImageClassifier", "SuperposedDecoder",
    "classifier", "decoder", "encoder",
    "hidden_units", "latent_numbers", "sized", "superpose", "weight_count",
]  # fmt: skip

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
    if ratio >= 1:
        return spec
    allowed, widths = ratio * weight_count(spec), range(1, spec.width + 1)
    fitting = bisect_right(widths, allowed, key=lambda w: weight_count(spec.model_copy(update={"width": w})))
    return spec.model_copy(update={"width": max(fitting, 1)})
