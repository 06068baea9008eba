"""Pictures of Pillow as pixels of a memory: any mode to 8 bits, any size to the memory's, upright.

For every mode:
- transparent pixels become white: on black, dark drawings on a transparent background would vanish;
- 16-bit images are scaled from 0..65535 (Pillow alone would clip at 255), float images from 0..1. No image is
  stretched to its own range, because equal values must stay equal across images.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from logcl.core.errors import DataError
from logcl.core.settings import ImageFit, ImageShape

Pixels = NDArray[np.uint8]
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")


def to_picture(pixels: Pixels) -> Image.Image:
    """One image (C, H, W) as a picture of Pillow; C is 1, 3 or 4."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def from_picture(picture: Image.Image) -> Pixels:
    """A picture in mode L or RGB as one image (C, H, W)."""
    array: Pixels = np.asarray(picture, np.uint8)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def is_grey(picture: Image.Image) -> bool:
    """Whether a picture has no colours, by its mode or palette; pixels are not read."""
    if picture.mode in ("P", "PA") and picture.palette is not None:
        entry = len(picture.palette.rawmode or picture.palette.mode)  # bytes: RGB, RGBA or BGRX
        values = np.frombuffer(bytes(picture.palette.palette), np.uint8)
        colours = values[: len(values) // entry * entry].reshape(-1, entry)[:, :3]
        return bool((colours == colours[:, :1]).all())
    return picture.mode in _GREY_MODES or picture.mode.startswith("I;16")


def pixels_of(picture: Image.Image, image_shape: ImageShape, fit: ImageFit, name: str) -> Pixels:
    """A picture of any mode and size as uint8 (C, H, W); `name` is what an error message calls it."""
    channels, height, width = image_shape
    upright = ImageOps.exif_transpose(picture)
    flat = to_8_bits(upright, name).convert("L" if channels == 1 else "RGB")
    return from_picture(fitted(flat, height, width, fit))


def fitted(picture: Image.Image, height: int, width: int, fit: ImageFit) -> Image.Image:
    """A picture in mode L or RGB resized with anti-aliasing to exactly this size.

    `crop` keeps the largest part around the centre that has the new aspect ratio; `pad` keeps all of the
    picture and fills the rest with the mean colour of the edges beside it; `stretch` squeezes the picture.
    """
    if picture.size == (width, height):
        return picture
    if fit == "pad":
        return _padded(picture, height, width)
    box = None
    if fit == "crop":
        across = min(picture.width, picture.height * width / height)
        down = min(picture.height, picture.width * height / width)
        left, top = (picture.width - across) / 2, (picture.height - down) / 2
        box = (left, top, left + across, top + down)
    return picture.resize((width, height), Image.Resampling.LANCZOS, box=box)


def _padded(picture: Image.Image, height: int, width: int) -> Image.Image:
    scale = min(width / picture.width, height / picture.height)
    across = min(max(round(picture.width * scale), 1), width)
    down = min(max(round(picture.height * scale), 1), height)
    small = picture.resize((across, down), Image.Resampling.LANCZOS)
    if (across, down) == (width, height):
        return small
    array = np.asarray(small)
    # Not black or white: whatever the background is, the fill continues it and takes few bytes.
    edges = (array[:, 0], array[:, -1]) if down == height else (array[0], array[-1])
    colour = np.rint(np.concatenate(edges).mean(axis=0)).astype(int)
    fill = tuple(colour.tolist()) if colour.ndim else int(colour)
    page = Image.new(small.mode, (width, height), fill)
    page.paste(small, ((width - across) // 2, (height - down) // 2))
    return page


def to_8_bits(picture: Image.Image, name: str) -> Image.Image:
    """The picture in mode L or RGB, opaque."""
    if picture.mode.startswith("I;16"):
        return _from_16_bits(np.asarray(picture))
    if picture.mode == "I":
        # Some versions of Pillow open 16-bit PNG files in this 32-bit mode.
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > 65535:
            raise DataError(
                f"{name} has 32-bit values outside 0..65535; save it with 8 or 16 bits, or remove it"
            )
        return _from_16_bits(values)
    if picture.mode == "F":
        values = np.asarray(picture)
        if not (values.min() >= 0 and values.max() <= 1):  # also false for NaN
            raise DataError(f"{name} has float values outside 0..1; save it with 8 or 16 bits, or remove it")
        return Image.fromarray(np.rint(values * 255).astype(np.uint8))
    if picture.has_transparency_data:
        page = Image.new("RGBA", picture.size, "white")
        page.alpha_composite(picture.convert("RGBA"))
        return page.convert("RGB")
    return picture.convert("L" if picture.mode in ("1", "L") else "RGB")


def _from_16_bits(values: NDArray[np.generic]) -> Image.Image:
    return Image.fromarray(((values.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8))
