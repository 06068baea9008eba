"""Image files without what all files of one shape have in common.

    file = shell (boxes, sequence header, sizes) + payload (the compressed image)

A shell is stored once for all samples. `wrap(shell, strip(file))` is the file again, byte for byte; a file of
which that is not true is refused.
"""

from __future__ import annotations

import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError, features

from logcl.core.errors import BadSettings

Pixels = NDArray[np.uint8]
LOWEST, HIGHEST = -64, 100
"""Quality: that of Pillow from 0 on, of dimmed images below."""
_FRAME, _SEQUENCE, _DELIMITER = 6, 1, 2  # types of AV1's open bitstream units
_LONGEST_SHELL = 1024  # bytes; ours have about 300, and each is parsed anew for every image


class Container(ABC):
    """One file format."""

    name: str

    @abstractmethod
    def options(self, grey: bool, quality: int, speed: int) -> dict[str, Any]:
        """Options with which Pillow writes a file."""

    @abstractmethod
    def split(self, file: bytes) -> tuple[bytes, bytes]:
        """Shell and payload of a file."""

    @abstractmethod
    def wrap(self, shell: bytes, payload: bytes) -> bytes:
        """The file; raises ValueError if this is no shell."""

    @abstractmethod
    def size(self, shell: bytes) -> tuple[int, int]:
        """Height and width of what the decoder will allocate; raises ValueError if this is no shell."""

    def encode(self, image: Pixels, quality: int, speed: int) -> tuple[bytes, bytes]:
        """Shell and code of an image (C, H, W): how far it was dimmed, then the payload.

        Formats end at quality 0. Below that the image is dimmed, which makes their steps relatively larger.
        """
        grey, dimmed = len(image) == 1, max(-quality, 0)
        image = _dim(dimmed)[image] if dimmed else image
        picture = Image.fromarray(image[0] if grey else np.ascontiguousarray(image.transpose(1, 2, 0)))
        content = io.BytesIO()
        picture.save(content, self.name, **self.options(grey, max(quality, 0), speed))
        file = content.getvalue()
        shell, payload = self.split(file)
        if self.wrap(shell, payload) != file:
            raise ValueError(f"this Pillow writes {self.name} files of another structure")
        return shell, bytes([dimmed]) + payload

    def decode(self, shell: bytes, code: bytes, grey: bool) -> Pixels:
        """The image (C, H, W); raises ValueError or OSError if there is none."""
        if not code or code[0] > -LOWEST:
            raise ValueError("it was dimmed too far")
        try:
            with Image.open(io.BytesIO(self.wrap(shell, code[1:])), formats=[self.name]) as picture:
                if picture.size != self.size(shell)[::-1]:
                    raise ValueError("the picture has another size")
                pixels = np.asarray(picture.convert("L" if grey else "RGB"))
        except (UnidentifiedImageError, SyntaxError, RuntimeError, MemoryError) as error:
            raise ValueError(str(error)) from error
        pixels = pixels if not code[0] else _undim(code[0])[pixels]
        return pixels[None] if grey else pixels.transpose(2, 0, 1)

    def check_available(self) -> None:
        """Raise BadSettings if this Pillow lacks the format."""
        if not features.check(self.name.lower()):
            raise BadSettings(f"this Pillow has no {self.name}; install pillow 11.3 or newer from PyPI")


class Avif(Container):
    """AV1 still images. The shell is everything up to the frame; its two sizes are zeroed."""

    name = "AVIF"

    def options(self, grey: bool, quality: int, speed: int) -> dict[str, Any]:
        """Tuned for squared error; subsampled colour would lose more than it saves."""
        return {
            "quality": quality, "speed": speed, "subsampling": "4:0:0" if grey else "4:4:4",
            "max_threads": 1, "advanced": {"tune": "psnr"},
        }  # fmt: skip

    def split(self, file: bytes) -> tuple[bytes, bytes]:
        """The frame is the last unit of the file."""
        start = file.index(b"mdat") + 4
        for kind, at, first, last in _units(file[start:]):
            if kind == _FRAME and start + last == len(file):
                return self._with_sizes(file[: start + at + 1], 0, 0), file[start + first :]
        raise ValueError("there is no frame at the end")

    def wrap(self, shell: bytes, payload: bytes) -> bytes:
        """Put the sizes back."""
        body = len(shell) - shell.index(b"mdat") - 4
        size = _leb128(len(payload))
        length = body + len(size) + len(payload)
        return self._with_sizes(shell, length, length + 8) + size + payload

    def size(self, shell: bytes) -> tuple[int, int]:
        """From the sequence header, which decides what is allocated; there must be only one.

        Other frames before the payload would be decoded, too.
        """
        if len(shell) > _LONGEST_SHELL:
            raise ValueError("a shell is too long")
        units = shell[_data_at(shell) : -1]
        found = _units(units)
        headers = [units[first:last] for kind, _, first, last in found if kind == _SEQUENCE]
        if len(headers) != 1 or not shell or shell[-1] != _FRAME << 3 | 2:
            raise ValueError("there is no sequence header, or more than one")
        if any(kind not in (_SEQUENCE, _DELIMITER) for kind, *_ in found):
            raise ValueError("there is more than one frame")
        bits = "".join(f"{byte:08b}" for byte in headers[0])
        if bits[3:5] != "11" or len(bits) < 50:  # a still picture with the short header
            raise ValueError("it is no still picture")
        wide, high = int(bits[10:14], 2) + 1, int(bits[14:18], 2) + 1
        width, height = bits[18 : 18 + wide], bits[18 + wide : 18 + wide + high]
        return int(height, 2) + 1, int(width, 2) + 1

    @staticmethod
    def _with_sizes(shell: bytes, item: int, box: int) -> bytes:
        """Set the length of the image in `iloc`, where it comes last, and that of the box `mdat`."""
        place = shell.index(b"iloc") - 4
        (size,) = struct.unpack_from(">I", shell, place)
        found, end = bytearray(shell), place + size
        box_at = shell.index(b"mdat") - 4
        if not place + 12 <= end <= box_at:
            raise ValueError("iloc is out of place")
        struct.pack_into(">I", found, end - 4, item)
        struct.pack_into(">I", found, box_at, box)
        return bytes(found)


class Webp(Container):
    """VP8 key frames. The shell is the RIFF header with zeroed sizes, start code, and size of the frame."""

    name = "WEBP"
    _SHELL = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\x9d\x01\x2a"

    def options(self, grey: bool, quality: int, speed: int) -> dict[str, Any]:
        """The slowest method: even that is fast."""
        del grey, speed
        return {"quality": quality, "method": 6}

    def split(self, file: bytes) -> tuple[bytes, bytes]:
        """Three bytes of the frame come before its start code."""
        (size,) = struct.unpack_from("<I", file, 16)
        return self._SHELL + file[26:30], file[20:23] + file[30 : 20 + size]

    def wrap(self, shell: bytes, payload: bytes) -> bytes:
        """Put the sizes back; chunks have an even length."""
        self.size(shell)
        chunk = payload[:3] + shell[20:] + payload[3:]
        padded = chunk + b"\0" * (len(chunk) % 2)
        return struct.pack("<4sI8sI", shell[:4], 12 + len(padded), shell[8:16], len(chunk)) + padded

    def size(self, shell: bytes) -> tuple[int, int]:
        """Fourteen bits each."""
        if shell[:-4] != self._SHELL:
            raise ValueError("it is not the header of a lossy WebP file")
        width, height = struct.unpack("<HH", shell[-4:])
        return height, width


@cache
def _dim(steps: int) -> Pixels:
    """Brightness of dimmed images, by that of the image: halved every 16 steps."""
    return np.asarray((np.arange(256) * 2 ** (-steps / 16)).round(), np.uint8)


@cache
def _undim(steps: int) -> Pixels:
    """The inverse of `_dim`."""
    return np.asarray((np.arange(256) * 2 ** (steps / 16)).round().clip(max=255), np.uint8)


CONTAINERS: dict[str, Container] = {"avif": Avif(), "webp": Webp()}


_TOP, _META = (b"ftyp", b"meta", b"mdat"), {b"hdlr", b"pitm", b"iloc", b"iinf", b"iprp"}
# `iloc` up to the place of the data: offsets and lengths of four bytes, one item of one piece, in this file.
_ONE_ITEM = bytes.fromhex("0000000044000001000100000001")


def _data_at(shell: bytes) -> int:
    """Where the only image begins; raises ValueError if the boxes could lead a decoder to any other."""
    top = list(_boxes(shell, 0))
    if tuple(kind for kind, _, _ in top) != _TOP:
        raise ValueError("its boxes are not those of a single image")
    (_, start, end), data = top[1], top[2][1]
    inside = list(_boxes(shell[:end], start + 4))
    place = next((at for kind, at, _ in inside if kind == b"iloc"), 0)
    if {kind for kind, _, _ in inside} != _META or len(inside) != len(_META):
        raise ValueError("its boxes are not those of a single image")
    if shell[place:][:18] != _ONE_ITEM + struct.pack(">I", data):
        raise ValueError("its image lies elsewhere")
    if shell.index(b"iloc") != place - 4 or shell.index(b"mdat") != data - 4:
        raise ValueError("its boxes have each other's names")
    return data


def _boxes(data: bytes, at: int) -> Iterator[tuple[bytes, int, int]]:
    """Boxes of an image file: type, and where the content begins and ends; a size of 0 is up to the end."""
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at) if at + 8 <= len(data) else (1, b"")
        end = at + size if size else len(data)
        if not at + 8 <= end <= len(data):
            raise ValueError("a box has no proper size")
        yield kind, at + 8, end
        at = end


def _units(data: bytes) -> list[tuple[int, int, int, int]]:
    """AV1's units: type, and where header, content and end are."""
    found, at = [], 0
    while at < len(data):
        first, size = at + 1, 0
        if data[at] & 0b10000110 != 0b10:
            raise ValueError("a unit has no size")
        for place in range(5):
            if first >= len(data):
                raise ValueError("a unit ends too early")
            byte = data[first]
            first += 1
            size |= (byte & 127) << 7 * place
            if byte < 128:
                break
        found.append((data[at] >> 3, at, first, first + size))
        at = first + size
    return found


def _leb128(value: int) -> bytes:
    """A length as AV1 writes it: seven bits per byte, the lowest first."""
    found = bytearray()
    while True:
        value, low = value >> 7, value & 127
        found.append(low | (128 if value else 0))
        if not value:
            return bytes(found)
