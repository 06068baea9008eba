"""Replay from a memory inside Avalanche (`pip install 'logcl[avalanche]'`)."""

from logcl.integrations.avalanche.features import FeatureSet, features_of
from logcl.integrations.avalanche.plugin import LogCLBuffer, LogCLPlugin

__all__ = ["FeatureSet", "LogCLBuffer", "LogCLPlugin", "features_of"]
