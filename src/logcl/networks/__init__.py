"""Decoders, encoders, labellers and classifiers, each built from a small frozen description."""

from logcl.networks.autoencoders import AutoencoderSpec, codes_an_image, decoder, encoder
from logcl.networks.classifiers import ClassifierSpec, classifier
from logcl.networks.cosine import CosineDecoder, coefficient_count, coefficients
from logcl.networks.sizes import sized, weight_count

__all__ = [
    "AutoencoderSpec", "ClassifierSpec", "CosineDecoder", "classifier", "codes_an_image", "coefficient_count",
    "coefficients", "decoder", "encoder", "sized", "weight_count",
]  # fmt: skip
