"""Decoders, encoders, labellers and classifiers, each built from a small frozen description."""

from logcl.networks.autoencoders import AutoencoderSpec, decoder, encoder
from logcl.networks.classifiers import ClassifierSpec, classifier
from logcl.networks.sizes import sized, weight_count

__all__ = ["AutoencoderSpec", "ClassifierSpec", "classifier", "decoder", "encoder", "sized", "weight_count"]
