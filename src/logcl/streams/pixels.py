"""Decoding an image file of any size and mode to uint8 (channels, height, width).

What becomes of modes and sizes is in `core/pictures.py`. Only the first frame is read.

Memory is bounded by what Pillow needs for the largest image accepted, 90 million pixels of four bytes;
everything after decoding works on strips of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, get_args

from PIL import Image, UnidentifiedImageError

from logcl.core.errors import BadSettings, DataError
from logcl.core.pictures import Pixels, is_grey, pixels_of, to_8_bits
from logcl.core.settings import ImageFit, ImageShape
from logcl.streams.archives import reading

# Raster formats only: Pillow runs other programs for some of the rest (EPS).
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
_ORIENTATION = 0x0112  # the EXIF tag
_LARGE = 2**24  # pixels; larger images are first shrunk strip by strip
_MOST_PIXELS = {"WEBP": 2**25, "JPEG2000": 2**25}  # their decoders hold several copies


def check_image_shape(image_shape: ImageShape) -> None:
    """Refuse shapes other than (1 or 3, height, width)."""
    try:
        channels, height, width = image_shape
        good = channels in (1, 3) and height >= 1 and width >= 1
    except (TypeError, ValueError):
        good = False
    if not good:
        raise BadSettings(
            f"the image shape {image_shape!r} is not valid; give (1 or 3 channels, height, width)"
        )


def check_fit(fit: ImageFit) -> None:
    """Refuse what is no way to fit images."""
    if fit not in get_args(ImageFit):
        raise BadSettings(f"fit is {fit!r}; choose one of: {', '.join(get_args(ImageFit))}")


def read_image(path: str | Path, image_shape: ImageShape, fit: ImageFit = "crop") -> Pixels:
    """Read an image file as uint8 (C, H, W), resized with anti-aliasing if its size differs; see `fitted`."""
    check_image_shape(image_shape)
    _, height, width = image_shape
    with opened_image(Path(path), str(path)) as image:
        # JPEG decodes at 1/2, 1/4 or 1/8 of the size; at four times the target size no detail is lost.
        image.draft(image.mode, (4 * max(height, width),) * 2)
        return pixels_of(_shrunk(image, Path(path)), image_shape, fit, str(path))


def read_header(path: Path) -> tuple[bool, tuple[int, int]]:
    """Whether an image is grey, and its (height, width) when upright, without decoding pixels."""
    with opened_image(path, str(path)) as image:
        width, height = image.size
        # Pillow rotates TIFF itself; reading EXIF at the end of a PNG would decode it.
        turned = (
            image.format != "TIFF"
            and "exif" in image.info
            and image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
        )
        return is_grey(image), (width, height) if turned else (height, width)


@contextmanager
def opened_image(file: Path | IO[bytes], name: str) -> Iterator[Image.Image]:
    """Open an image without decoding it; any error inside becomes a DataError about `name`."""
    with reading(name), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd metadata
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file, formats=_FORMATS) as image:
                if image.width * image.height > _MOST_PIXELS.get(image.format or "", _LARGE * 64):
                    raise Image.DecompressionBombError
                yield image
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            message = f"{name} claims more pixels than LogCL decodes; make it smaller, or remove it"
            raise DataError(message) from error
        except UnidentifiedImageError as error:
            message = f"{name} is not an image in a supported format; convert it to PNG or JPEG, or remove it"
            raise DataError(message) from error


def _shrunk(image: Image.Image, path: Path) -> Image.Image:
    """The image itself or, if it is large, a smaller version in mode L or RGB."""
    width, height = image.size
    if width * height <= _LARGE:
        return image
    factor = math.isqrt(width * height // _LARGE) + 1
    rows = factor * max(_LARGE // 16 // (width * factor), 1)
    strips = [
        to_8_bits(image.crop((0, top, width, min(top + rows, height))), str(path)).reduce(factor)
        for top in range(0, height, rows)
    ]
    small = Image.new(strips[0].mode, (strips[0].width, sum(strip.height for strip in strips)))
    for number, strip in enumerate(strips):
        small.paste(strip, (0, number * rows // factor))
    small.getexif()[_ORIENTATION] = image.getexif().get(_ORIENTATION, 1)
    return small
