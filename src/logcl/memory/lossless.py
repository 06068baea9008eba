"""Images compressed without loss: as WebP pictures, or deflated where that takes fewer bytes.

    (n, C, H, W) -> rows of W pixels, image below image -> cut into pictures -> one WebP file each

Images of three channels become rows of colour pixels; of any others, each channel is an image of its own.
Images share pictures up to 2^16 pixels: small ones then cost no header each, large ones keep their own
statistics. On photographs of 32 to 224 pixels a side this takes 45 to 60 % of what deflate takes.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from logcl.core.errors import Damaged
from logcl.core.settings import ImageShape
from logcl.core.text import printable

WEBP, DEFLATED = "webp", "pixels"
"""Names of the arrays that hold the images, one or the other."""
_SHARED, _LARGEST = 2**16, 2**20  # pixels: of several images in one picture, and of any picture
_TALLEST = 16_383  # rows of a WebP picture
# Higher settings take several times longer for about one per cent of the bytes. Tasks of one sample rewrite
# small chunks over and over, so these are compressed three times faster, for three per cent more bytes.
_THOROUGH, _FAST = {"method": 4, "quality": 50}, {"method": 3, "quality": 0}
_SMALL = 16  # images
_HEADER = struct.Struct("<4sI8sIBI")  # "RIFF", bytes after this; "WEBPVP8L", bytes after this; 0x2f, size


def compress(x: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
    """Images (n, C, H, W) as one array of bytes under `WEBP` or `DEFLATED`, whichever is smaller."""
    found = {DEFLATED: zlib.compress(np.ascontiguousarray(x).data, 9)}
    rows = _rows(x)
    tall = _picture_rows(x.shape[1:])
    pictures = [rows[top : top + tall] for top in range(0, len(rows), tall)]
    encode = partial(_encoded, effort=_FAST if len(x) < _SMALL else _THOROUGH)
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # encoding releases the GIL
            found[WEBP] = b"".join(pool.map(encode, pictures))
    except (OSError, RuntimeError, ValueError, EOFError, LookupError, struct.error):
        pass  # a Pillow without WebP, or with a faulty one
    smallest = min(found, key=lambda name: len(found[name]))
    return {smallest: np.frombuffer(found[smallest], np.uint8).copy()}


def decompress(
    arrays: Mapping[str, NDArray[np.uint8]], count: int, image_shape: ImageShape, name: str
) -> NDArray[np.uint8]:
    """`count` images that `compress` compressed; `Damaged` with the `name` of their part if there are none.

    Decodes no more than was asked for, however much the bytes claim to hold.
    """
    held = [key for key in (WEBP, DEFLATED) if key in arrays]
    if len(held) != 1 or arrays[held[0]].ndim != 1:
        raise Damaged(f"{name} does not hold what it describes; `logcl verify` says what is intact")
    data = arrays[held[0]].tobytes()
    try:
        decode = _from_webp if held == [WEBP] else _inflated
        return decode(data, count, image_shape)
    except (OSError, RuntimeError, ValueError, EOFError, SyntaxError, struct.error, zlib.error) as error:
        reason = printable(" ".join(str(error).split())[:200])
        raise Damaged(
            f"{name} cannot be decompressed ({reason}); `logcl verify` says what is intact"
        ) from error


def _rows(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images (n, C, H, W), or their channels, one below the other: (rows, W, 3 or 1)."""
    channels, width = x.shape[1], x.shape[3]
    return x.transpose(0, 2, 3, 1).reshape(-1, width, 3) if channels == 3 else x.reshape(-1, width, 1)


def _picture_rows(image_shape: tuple[int, ...]) -> int:
    """Rows of every picture but the last, which has the rest."""
    _, height, width = image_shape
    return min(max(_SHARED // (height * width), 1) * height, _LARGEST // width, _TALLEST)


def _encoded(picture: NDArray[np.uint8], effort: Mapping[str, int]) -> bytes:
    """A picture (rows, W, 3 or 1) as a WebP file, decoded again as proof: it will be the only copy."""
    colours = np.broadcast_to(picture, (*picture.shape[:2], 3))
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(colours)).save(file, "WEBP", lossless=True, exact=True, **effort)
    content = file.getvalue()
    if _file_at(content, 0, *picture.shape[:2]) != content or not np.array_equal(_decoded(content), colours):
        raise ValueError("WebP has changed pixels")
    return content


def _file_at(data: bytes, start: int, height: int, width: int) -> bytes:
    """The WebP file that starts there, if its header is one of a lossless picture of that size.

    Pillow allocates what a header claims as soon as it opens a file, so it must not see any other.
    """
    riff, length, webp, _, signature, size = _HEADER.unpack_from(data, start)
    file = data[start : start + 8 + length]
    # The size has 14 bits for each side, then one for transparency and three for the version, all 0.
    sound = (riff, webp, signature, size) == (b"RIFF", b"WEBPVP8L", 0x2F, (width - 1) | (height - 1) << 14)
    if not sound or len(file) != 8 + length:
        raise ValueError(f"no lossless picture of {width}x{height} pixels where one should be")
    return file


def _decoded(file: bytes) -> NDArray[np.uint8]:
    try:
        with Image.open(io.BytesIO(file), formats=["WEBP"]) as image:
            return np.asarray(image)
    except UnidentifiedImageError as error:  # its text names an object in memory
        raise ValueError("Pillow does not recognise a WebP picture") from error


def _from_webp(data: bytes, count: int, image_shape: ImageShape) -> NDArray[np.uint8]:
    channels, height, width = image_shape
    colour = channels == 3
    total, tall = count * height * (1 if colour else channels), _picture_rows(image_shape)
    if -(-total // tall) * _HEADER.size > len(data):
        raise ValueError("too few bytes")
    files, start = [], 0
    for top in range(0, total, tall):
        files.append(_file_at(data, start, min(tall, total - top), width))
        start += len(files[-1])
    if start != len(data):
        raise ValueError("bytes after the last picture")
    rows = np.empty((total, width, 3 if colour else 1), np.uint8)
    for number, file in enumerate(files):
        part = rows[number * tall : (number + 1) * tall]
        picture = _decoded(file)
        if picture.shape != (*part.shape[:2], 3):
            raise ValueError(f"a picture of shape {picture.shape}")
        part[:] = picture[..., : part.shape[2]]
    if colour:
        return np.ascontiguousarray(rows.reshape(count, height, width, 3).transpose(0, 3, 1, 2))
    return rows.reshape(count, channels, height, width)


def _inflated(data: bytes, count: int, image_shape: ImageShape) -> NDArray[np.uint8]:
    size = count * int(np.prod(image_shape))
    # Deflate shrinks by at most 1032: a larger claim is false, and refused before it is allocated.
    pixels = zlib.decompressobj().decompress(data, size + 1) if size <= 1032 * len(data) else b""
    if len(pixels) != size:
        raise ValueError("too few or too many bytes")
    return np.frombuffer(pixels, np.uint8).reshape(count, *image_shape)
