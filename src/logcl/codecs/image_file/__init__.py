"""The codec `image_file`: AVIF or WebP files without what is common to all of them."""

from logcl.codecs.image_file.codec import ImageFile, ImageFileSettings

__all__ = ["ImageFile", "ImageFileSettings"]
