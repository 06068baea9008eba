"""The codec `pixels`: a few shades of grey, each pixel coded in the context of its neighbours."""

from logcl.codecs.pixels.codec import Pixels, PixelsSettings

__all__ = ["Pixels", "PixelsSettings"]
