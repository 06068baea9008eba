"""Codecs: how images become codes and back."""
