"""The codec `pyramid`: small cosine transforms, coded in context by networks that come with this package."""

from logcl.codecs.pyramid.codec import Pyramid, PyramidSettings

__all__ = ["Pyramid", "PyramidSettings"]
