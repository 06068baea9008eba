"""Decoders, encoders, labellers and classifiers, each built from a small frozen description."""

from logcl.networks.autoencoders import AutoencoderSpec, decoder, encoder
from logcl.networks.classifiers import ClassifierSpec, classifier

__all__ = ["AutoencoderSpec", "ClassifierSpec", "classifier", "decoder", "encoder"]
