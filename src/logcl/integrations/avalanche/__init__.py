"""Replay from a memory inside Avalanche (`pip install 'logcl[avalanche]'`)."""

from logcl.integrations.avalanche.plugin import LogCLBuffer, LogCLPlugin

__all__ = ["LogCLBuffer", "LogCLPlugin"]
