"""One image file of any mode → the pixels one would expect."""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from logcl.core.errors import BadSettings, DataError
from logcl.streams.images import read_image
from logcl.streams.pixels import read_header


def save(tmp_path, image, name="a.png", **options):
    image.save(tmp_path / name, **options)
    return tmp_path / name


def gradient(low, high, dtype, size=16):
    return np.linspace(low, high, size * size).reshape(size, size).astype(dtype)


def test_grey_and_colour_are_kept_exactly(tmp_path, rng):
    grey = rng.integers(0, 256, (5, 7), dtype=np.uint8)
    colour = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    path = save(tmp_path, Image.fromarray(grey))
    assert np.array_equal(read_image(path, (1, 5, 7)), grey[None])
    assert np.array_equal(read_image(path, (3, 5, 7)), np.repeat(grey[None], 3, 0))
    path = save(tmp_path, Image.fromarray(colour))
    read = read_image(path, (3, 5, 7))
    assert np.array_equal(read, colour.transpose(2, 0, 1))
    assert read.dtype == np.uint8
    assert read.flags.c_contiguous
    assert np.array_equal(read_image(path, (1, 5, 7))[0], np.asarray(Image.fromarray(colour).convert("L")))


def test_16_bits_are_scaled_not_clipped(tmp_path):
    values = gradient(0, 65535, np.uint16)
    expected = np.rint(values / 257).astype(np.uint8)
    for name in ("a.png", "a.tif"):
        path = save(tmp_path, Image.fromarray(values), name)
        assert np.array_equal(read_image(path, (1, 16, 16))[0], expected)
        assert read_header(path) == (True, (16, 16))


def test_32_bit_integers_are_taken_as_16_bits_or_refused(tmp_path):
    values = gradient(0, 65535, np.int32)
    path = save(tmp_path, Image.fromarray(values), "a.tif")
    assert np.array_equal(read_image(path, (1, 16, 16))[0], np.rint(values / 257).astype(np.uint8))
    for bad in (values - 1, values + 1):
        with pytest.raises(DataError, match="32-bit values outside"):
            read_image(save(tmp_path, Image.fromarray(bad), "a.tif"), (1, 16, 16))


def test_floats_from_0_to_1_are_scaled_and_others_refused(tmp_path):
    values = gradient(0, 1, np.float32)
    path = save(tmp_path, Image.fromarray(values), "a.tif")
    assert np.array_equal(read_image(path, (1, 16, 16))[0], np.rint(values * 255).astype(np.uint8))
    for bad in (values * 255, values - 0.5, np.where(values > 0.9, np.nan, values).astype(np.float32)):
        with pytest.raises(DataError, match="float values outside"):
            read_image(save(tmp_path, Image.fromarray(bad), "a.tif"), (1, 16, 16))


def test_one_bit(tmp_path):
    bits = np.eye(8, dtype=bool)
    path = save(tmp_path, Image.fromarray(bits))
    assert np.array_equal(read_image(path, (1, 8, 8))[0], np.where(bits, 255, 0))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_show_white(tmp_path, mode):
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 4, 8))
    if mode == "P":
        image = Image.new("P", (8, 8), 1)
        image.putpalette([0, 0, 0, 9, 9, 9])
        image.paste(0, (0, 0, 4, 8))
        path = save(tmp_path, image, transparency=1)
    else:
        path = save(tmp_path, image.convert(mode))
    read = read_image(path, (3, 8, 8))
    assert (read[:, :, :4] == 0).all()
    assert (read[:, :, 4:] == 255).all()


def test_half_transparent_red_is_pink(tmp_path):
    path = save(tmp_path, Image.new("RGBA", (2, 2), (255, 0, 0, 128)))
    assert read_image(path, (3, 2, 2))[:, 0, 0].tolist() == [255, 127, 127]


def test_palette_and_cmyk(tmp_path, rng):
    colour = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    palette = colour.quantize(16)
    assert np.array_equal(
        read_image(save(tmp_path, palette), (3, 8, 8)), np.asarray(palette.convert("RGB")).transpose(2, 0, 1)
    )
    cmyk = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red = read_image(save(tmp_path, cmyk, "a.tif"), (3, 8, 8))
    assert red[0].min() > 200
    assert red[1:].max() < 60


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    pixels = np.zeros((16, 32), np.uint8)
    pixels[:, :16] = 255  # the left half bright → the upper half
    path = save(tmp_path, Image.fromarray(pixels), "a.jpg", exif=exif, quality=95)
    assert read_header(path) == (True, (32, 16))
    upright = read_image(path, (1, 32, 16))[0]
    assert upright[:12].min() > 240
    assert upright[20:].max() < 15


def test_shrinking_is_anti_aliased(tmp_path):
    lines = np.zeros((64, 64), np.uint8)
    lines[:, ::2] = 255  # every second column: picking pixels would give all black or all white
    read = read_image(save(tmp_path, Image.fromarray(lines)), (1, 8, 8))
    assert abs(read.astype(int) - 127).max() <= 10


def test_large_jpeg_shrinks_to_the_same_picture(tmp_path):
    y, x = np.mgrid[:1200, :1600]
    photo = np.stack([x * 255 // 1600, y * 255 // 1200, (x + y) * 255 // 2800], -1).astype(np.uint8)
    path = save(tmp_path, Image.fromarray(photo), "photo.jpg", quality=95)
    small = np.asarray(Image.fromarray(photo).resize((32, 32), Image.Resampling.LANCZOS)).transpose(2, 0, 1)
    assert abs(read_image(path, (3, 32, 32), "stretch").astype(int) - small).max() <= 8


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I;16", "P-grey"])
def test_header_says_grey(tmp_path, mode, rng):
    values = rng.integers(0, 256, (4, 4), dtype=np.uint8)
    image = Image.fromarray(values)
    if mode == "I;16":
        image = Image.fromarray(values.astype(np.uint16))
    elif mode == "P-grey":
        image.putpalette([v for v in range(256) for _ in range(3)])
    else:
        image = image.convert(mode)
    assert read_header(save(tmp_path, image)) == (True, (4, 4))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_header_says_colour(tmp_path, mode, rng):
    image = Image.fromarray(rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)).convert(mode)
    assert read_header(save(tmp_path, image)) == (False, (4, 6))


def bomb(width=50_000, height=50_000):
    """A PNG of a few hundred bytes that claims to be huge."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_000, 50_000])  # Pillow warns of the first and refuses the second
def test_bombs_are_refused(tmp_path, side):
    path = tmp_path / "bomb.png"
    path.write_bytes(bomb(side, side))
    for read in (read_header, lambda p: read_image(p, (1, 8, 8))):
        with (
            warnings.catch_warnings(record=True) as seen,
            pytest.raises(DataError, match=r"bomb\.png.*pixels"),
        ):
            read(path)
        assert not seen


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "bmp", "tif", "webp"])
def test_truncated_files_name_the_file_and_the_remedy(tmp_path, rng, ending):
    image = Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    path = save(tmp_path, image, f"a.{ending}")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"a\.{ending} .*; .*remove it$"):
        read_image(path, (3, 8, 8))


@pytest.mark.parametrize(
    "content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"%!PS-Adobe"]
)
def test_garbage_is_refused(tmp_path, content):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    for read in (read_header, lambda p: read_image(p, (1, 8, 8))):
        with pytest.raises(DataError, match=r"a\.png"):
            read(path)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"gone\.png cannot be read \(No such file"):
        read_image(tmp_path / "gone.png", (1, 8, 8))


SAMPLES = {
    ending: (
        lambda b: (Image.radial_gradient("L").resize((24, 24)).convert(mode).save(b, ending), b.getvalue())[1]
    )(io.BytesIO())
    for ending, mode in (
        ("PNG", "P"),
        ("JPEG", "RGB"),
        ("GIF", "P"),
        ("TIFF", "L"),
        ("BMP", "RGB"),
        ("WEBP", "RGB"),
    )
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ending=st.sampled_from(sorted(SAMPLES)), data=st.data())
def test_damage_gives_pixels_or_a_data_error_and_nothing_else(tmp_path, ending, data):
    content = bytearray(SAMPLES[ending])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.img"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    for read in (read_header, lambda p: read_image(p, (3, 8, 8))):
        message = str(path)
        try:
            read(path)
        except DataError as error:
            message = str(error)
        assert str(path) in message


@pytest.mark.parametrize("shape", [(2, 8, 8), (3, 0, 8), (3, 8), (4, 8, 8), None, "388"])
def test_impossible_shapes(tmp_path, shape):
    with pytest.raises(BadSettings, match="shape"):
        read_image(tmp_path / "a.png", shape)
