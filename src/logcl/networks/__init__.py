"""Decoders, encoders, labellers and classifiers, each built from a small frozen description."""

from logcl.networks.autoencoders import AutoencoderSpec, decoder, encoder
from logcl.networks.classifiers import ClassifierSpec, classifier
from logcl.networks.sizes import sized, weight_count
from logcl.networks.superposed import SuperposedDecoder, hidden_units, latent_numbers, superpose

__all__ = [
    "AutoencoderSpec",
    "ClassifierSpec",
    "SuperposedDecoder",
    "classifier",
    "decoder",
    "encoder",
    "hidden_units",
    "latent_numbers",
    "sized",
    "superpose",
    "weight_count",
]
