"""An AVIF shell may not lead the decoder to another image than the one whose size was checked."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from logcl.codecs.image_file.containers import CONTAINERS, _leb128, _units

AVIF = CONTAINERS["avif"]


def with_another_image(side: int) -> bytes:
    """The shell of a 64x64 image, beside whose data an image of side x side lies, which `iloc` points to."""
    content = io.BytesIO()
    Image.new("L", (side, side), 128).save(content, "AVIF", quality=0, speed=10, subsampling="4:0:0")
    big = content.getvalue()
    mdat = big.index(b"mdat") - 4
    meta, data = bytearray(big[big.index(b"meta") - 4 : mdat]), big[mdat + 8 :]
    struct.pack_into(">II", meta, meta.index(b"ispe") + 8, 64, 64)
    # The first "iloc", which gets the length of the payload, is a brand.
    brands = b"avif\0\0\0\0avifmif1miaf" + struct.pack(">I", 16) + b"ilocmif1mif1"
    ftyp = struct.pack(">I", 8 + len(brands)) + b"ftyp" + brands
    units = AVIF.encode(np.zeros((1, 64, 64), np.uint8), 0, 10)[0]
    units = units[units.index(b"mdat") + 4 : -1]
    body = units + bytes([15 << 3 | 2]) + _leb128(len(data))  # the rest is a padding unit
    assert _units(units)
    end = meta.index(b"iloc") - 4 + struct.unpack_from(">I", meta, meta.index(b"iloc") - 4)[0]
    struct.pack_into(">II", meta, end - 8, len(ftyp) + len(meta) + 8 + len(body), len(data))
    return ftyp + bytes(meta) + b"\0\0\0\0mdat" + body + data + b"\x32"


def test_a_shell_with_another_image_is_refused():
    with pytest.raises(ValueError, match="its image lies elsewhere"):
        AVIF.size(with_another_image(1024))


@pytest.mark.parametrize("shape", [(1, 1, 2), (1, 28, 28), (3, 32, 32), (3, 60, 1000)])
def test_genuine_shells_are_accepted(shape):
    assert AVIF.size(AVIF.encode(np.zeros(shape, np.uint8), 0, 10)[0]) == shape[1:]
