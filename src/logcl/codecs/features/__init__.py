"""Rounded features of a backbone."""

from logcl.codecs.features.codec import Features as Features
