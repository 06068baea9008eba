"""Decoders, encoders, labellers and classifiers, each built from a small frozen description."""

from logcl.nn.networks.autoencoders import AutoencoderSpec, decoder, encoder
from logcl.nn.networks.classifiers import ClassifierSpec, classifier
from logcl.nn.networks.layers import ImageClassifier
from logcl.nn.networks.sizes import sized, weight_count
from logcl.nn.networks.superposed import SuperposedDecoder, hidden_units, latent_numbers, superpose

__all__ = [
    "AutoencoderSpec", "ClassifierSpec", "ImageClassifier", "SuperposedDecoder",
    "classifier", "decoder", "encoder",
    "hidden_units", "latent_numbers", "sized", "superpose", "weight_count",
]  # fmt: skip
