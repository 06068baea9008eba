"""Decoders, encoders, labellers and classifiers, each built from a small frozen description."""

from logcl.nn.networks.autoencoders import AutoencoderSpec, codes_an_image, decoder, encoder
from logcl.nn.networks.classifiers import ClassifierSpec, classifier
from logcl.nn.networks.cosine import CosineDecoder, coefficient_count, coefficients
from logcl.nn.networks.layers import ImageClassifier
from logcl.nn.networks.sizes import sized, weight_count
from logcl.nn.networks.superposed import SuperposedDecoder, hidden_units, latent_numbers, superpose

__all__ = [
    "AutoencoderSpec", "ClassifierSpec", "CosineDecoder", "ImageClassifier", "SuperposedDecoder",
    "classifier", "codes_an_image", "coefficient_count", "coefficients", "decoder", "encoder",
    "hidden_units", "latent_numbers", "sized", "superpose", "weight_count",
]  # fmt: skip
