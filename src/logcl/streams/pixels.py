"""Decoding an image file of any size and mode to uint8 (channels, height, width).

For every mode:
- transparent pixels become white: on black, dark drawings on a transparent background would vanish;
- 16-bit images are scaled from 0..65535 (Pillow alone would clip at 255), float images from 0..1. No image is
  stretched to its own range, because equal values must stay equal across images;
- the whole image is resized, without keeping the aspect ratio: cropping could remove what the label is about;
- only the first frame is read.

Memory is bounded by what Pillow needs for the largest image accepted, 90 million pixels of four bytes;
everything after decoding works on strips of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from logcl.core.errors import BadSettings, DataError
from logcl.core.settings import ImageShape
from logcl.streams.archives import reading
from logcl.streams.stream import Pixels

# Raster formats only: Pillow runs other programs for some of the rest (EPS).
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
_ORIENTATION = 0x0112  # the EXIF tag
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")
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


def read_image(path: str | Path, image_shape: ImageShape) -> Pixels:
    """Read an image file as uint8 (C, H, W), resized with anti-aliasing if its size differs."""
    check_image_shape(image_shape)
    channels, height, width = image_shape
    with opened_image(Path(path), str(path)) as image:
        # JPEG decodes at 1/2, 1/4 or 1/8 of the size; at four times the target size no detail is lost.
        image.draft(image.mode, (4 * max(height, width),) * 2)
        upright = ImageOps.exif_transpose(_shrunk(image, Path(path)))
        flat = _to_8_bits(upright, Path(path)).convert("L" if channels == 1 else "RGB")
        if flat.size != (width, height):
            flat = flat.resize((width, height), Image.Resampling.LANCZOS)
        return from_picture(flat)


def to_picture(pixels: Pixels) -> Image.Image:
    """One image (C, H, W) as a picture of Pillow; C is 1, 3 or 4."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def from_picture(picture: Image.Image) -> Pixels:
    """A picture in mode L or RGB as one image (C, H, W)."""
    array: Pixels = np.asarray(picture, np.uint8)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


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
        return _is_grey(image), (width, height) if turned else (height, width)


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


def _is_grey(image: Image.Image) -> bool:
    if image.mode in ("P", "PA") and image.palette is not None:
        entry = len(image.palette.rawmode or image.palette.mode)  # bytes: RGB, RGBA or BGRX
        values = np.frombuffer(bytes(image.palette.palette), np.uint8)
        colours = values[: len(values) // entry * entry].reshape(-1, entry)[:, :3]
        return bool((colours == colours[:, :1]).all())
    return image.mode in _GREY_MODES or image.mode.startswith("I;16")


def _shrunk(image: Image.Image, path: Path) -> Image.Image:
    """The image itself or, if it is large, a smaller version in mode L or RGB."""
    width, height = image.size
    if width * height <= _LARGE:
        return image
    factor = math.isqrt(width * height // _LARGE) + 1
    rows = factor * max(_LARGE // 16 // (width * factor), 1)
    strips = [
        _to_8_bits(image.crop((0, top, width, min(top + rows, height))), path).reduce(factor)
        for top in range(0, height, rows)
    ]
    small = Image.new(strips[0].mode, (strips[0].width, sum(strip.height for strip in strips)))
    for number, strip in enumerate(strips):
        small.paste(strip, (0, number * rows // factor))
    small.getexif()[_ORIENTATION] = image.getexif().get(_ORIENTATION, 1)
    return small


def _to_8_bits(image: Image.Image, path: Path) -> Image.Image:
    """The image in mode L or RGB, opaque."""
    if image.mode.startswith("I;16"):
        return _from_16_bits(np.asarray(image))
    if image.mode == "I":
        # Some versions of Pillow open 16-bit PNG files in this 32-bit mode.
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise DataError(
                f"{path} has 32-bit values outside 0..65535; save it with 8 or 16 bits, or remove it"
            )
        return _from_16_bits(values)
    if image.mode == "F":
        values = np.asarray(image)
        if not (values.min() >= 0 and values.max() <= 1):  # also false for NaN
            raise DataError(f"{path} has float values outside 0..1; save it with 8 or 16 bits, or remove it")
        return Image.fromarray(np.rint(values * 255).astype(np.uint8))
    if image.has_transparency_data:
        page = Image.new("RGBA", image.size, "white")
        page.alpha_composite(image.convert("RGBA"))
        return page.convert("RGB")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _from_16_bits(values: NDArray[np.generic]) -> Image.Image:
    return Image.fromarray(((values.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8))
