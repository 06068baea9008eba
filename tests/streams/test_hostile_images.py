"""Hostile image files and arrays: bounded memory, and one sentence that names the file."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from logcl.core.errors import BadInput, DataError
from logcl.streams import read_npz, read_npz_images
from logcl.streams.images import list_all_images, read_folder, read_image


def png(width: int, height: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        ("png", png(50_000, 50_000, bytes(1000))),
        ("png", png(2**31 - 1, 2**31 - 1, b"")),
        ("png", png(8, 8, bytes(3))),
        ("gif", b"GIF89a" + struct.pack("<HHBBB", 65_535, 65_535, 0x80, 0, 0) + bytes(6) + b";"),
        ("bmp", b"BM" + struct.pack("<IHHIIiiHH", 100, 0, 0, 54, 40, 2**30, 2**30, 1, 24) + bytes(24)),
        ("ppm", b"P6 99999 99999 255\n"),
        ("tif", b"II*\0\x08\0\0\0" + struct.pack("<H", 2)
         + struct.pack("<HHII", 256, 4, 1, 2**31) + struct.pack("<HHII", 257, 4, 1, 2**31) + bytes(4)),
        ("png", b""),
        ("jpg", b"\xff\xd8\xff"),
        ("webp", b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff" * 6),
        ("png", b"\x1b[31m"),
    ],
)  # fmt: skip
def test_decompression_bombs_and_garbage(tmp_path, ending, content):
    file = tmp_path / f"a.{ending}"
    file.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"/a\.") as caught:
        read_image(file, (3, 8, 8))
    assert tracemalloc.get_traced_memory()[1] < 10**8
    tracemalloc.stop()
    assert str(caught.value).isprintable()


MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I;16", "I", "F")
ENDINGS = ("png", "tif", "jpg", "webp", "gif", "bmp", "jp2")


def can_be_saved(mode: str, ending: str) -> bool:
    """Whether this version of Pillow writes such files."""
    try:
        Image.new(mode, (9, 7)).save(io.BytesIO(), Image.registered_extensions()[f".{ending}"])
    except (OSError, ValueError, KeyError):
        return False
    return True


@pytest.mark.parametrize(
    ("mode", "ending"),
    [(mode, ending) for ending in ENDINGS for mode in MODES if can_be_saved(mode, ending)],
)
def test_every_mode_that_can_be_saved_can_be_read(tmp_path, mode, ending):
    file = tmp_path / f"a.{ending}"
    Image.new(mode, (9, 7)).save(file)
    for shape in ((1, 8, 8), (3, 8, 8)):
        assert read_image(file, shape).shape == shape


def test_large_images_are_shrunk_in_strips(tmp_path):
    rows, columns = np.mgrid[:4000, :5000]
    picture = Image.fromarray((rows // 16 % 256 // 2 + columns // 40).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(tmp_path / "a.png", exif=exif, compress_level=1)
    upright = picture.transpose(Image.Transpose.ROTATE_270)
    expected = np.asarray(upright.resize((30, 40), Image.Resampling.LANCZOS), int)
    assert np.abs(read_image(tmp_path / "a.png", (1, 40, 30), "stretch")[0] - expected).max() <= 2


def test_paths_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    for name in ("pipe.png", "folder.png"):
        with pytest.raises(DataError, match=name):
            read_image(tmp_path / name, (1, 8, 8))
    with pytest.raises(DataError, match="holds no images"):
        list_all_images(tmp_path)


def test_more_than_fits_is_one_sentence(tmp_path, make_images, monkeypatch):
    make_images(tmp_path / "cat", 2)

    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", full)
    with pytest.raises(DataError, match="2 images of 1x4x4 do not fit into memory"):
        read_folder(tmp_path, (1, 4, 4))


# --- .npz -------------------------------------------------------------------------------------------------


def npy(header: str, values: bytes = b"", version: int = 1) -> bytes:
    text = header.encode("latin1") + b"\n"
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<I", len(text))
        + text
        + values
    )


def described(descr: str, shape: str, values: bytes = b"", fortran: bool = False) -> bytes:
    return npy(f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}", values)


GOOD_X, GOOD_Y = described("|u1", "(6, 8, 8)", bytes(384)), described("<i8", "(6,)", bytes(48))


def save(path, x: bytes = GOOD_X, y: bytes = GOOD_Y, packing: int = zipfile.ZIP_DEFLATED, **more: bytes):
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in {"x": x, "y": y, **more}.items():
            archive.writestr(f"{name}.npy", content)
    return path


def test_the_helpers_of_these_tests_work(tmp_path):
    x, y = read_npz(save(tmp_path / "a.npz"))
    assert (x.shape, y.shape) == ((6, 1, 8, 8), (6,))


HEADERS = (
    "(" * 50, "(" * 300, "(" * 9000, "[" * 9000, "-" * 9000 + "1", "9" * 9000,
    "{'descr': 5L, 'shape': (6", "'''", "\x1b[31m",
    "{'descr': [('\\x1b[2J', '|O')], 'fortran_order': False, 'shape': (6,), }", "{}", "1" * 70_000,
)  # fmt: skip


@pytest.mark.parametrize(
    ("version", "header"),
    [
        pytest.param(version, header, id=f"{version}-{number}")
        for version in (1, 2, 3, 9)
        for number, header in enumerate(HEADERS)
        if version > 1 or len(header) < 65_000  # what a header of version 1 can say
    ],
)
def test_hostile_headers(tmp_path, version, header):
    for part in ("x", "y"):
        file = save(tmp_path / "a.npz", **{part: npy(header, bytes(384), version)})
        with pytest.raises((DataError, BadInput), match=r"a\.npz") as caught:
            read_npz(file)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": described("|u1", f"({2**62}, 8, 8)"), "y": described("|S0", f"({2**62},)")},
        {"x": described("|u1", "(6, 30000, 30000)")},
        {"x": described("|u1", "(6, 30000, 30000)", fortran=True)},
        {"x": described("|u1", "(-6, 8, 8)")},
        {"x": described("|u1", "(True, 8, 8)", bytes(64)), "y": described("<i8", "(1,)", bytes(8))},
        {"x": described("<f8", "(6, 8, 8)", bytes(100))},
        {"y": described("<U0", "(6,)")},
        {"y": described("|V8", "(6,)", bytes(48))},
        {"y": described("|O", "(6,)", b"cos\nsystem\n(S'true'\ntR.")},
        {"x": described("|O", "(6, 8, 8)", b"cos\nsystem\n(S'true'\ntR.")},
        {"y": described("<U1", "(6,)", b"\xff" * 24)},
        {"y": described("<U5000", "(6,)", b"9\0\0\0" * 30_000)},
        {"y": described("|S3", "(6,)", b"\xff" * 18)},
        {"x": described("<f8", "(6, 8, 8)", b"\xff" * 3072)},
    ],
    ids=range(14),
)
def test_arrays_with_false_headers(tmp_path, arrays):
    file = save(tmp_path / "a.npz", **arrays)
    with pytest.raises((DataError, BadInput), match=r"a\.npz") as caught:
        read_npz(file)
    assert str(caught.value).isprintable()


def test_a_bomb_of_zeros(tmp_path, monkeypatch):
    """A megabyte must not become a gigabyte."""
    monkeypatch.setattr("logcl.streams.arrays._MOST", 10**6)
    file = save(tmp_path / "a.npz", x=described("|u1", "(6, 1000, 1000)", bytes(6 * 10**6)))
    with pytest.raises(DataError, match="far more bytes than the file"):
        read_npz(file)
    monkeypatch.setattr("logcl.streams.arrays._MOST", 10**7)
    assert read_npz(file)[0].shape == (6, 1, 1000, 1000)


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unbounded_compression_methods_are_refused(tmp_path, packing):
    with pytest.raises(DataError, match="unsupported compression"):
        read_npz(save(tmp_path / "a.npz", packing=packing))


def test_a_zip_that_is_also_an_array(tmp_path):
    """numpy would read what is before the zip, whatever size that claims."""
    file = save(tmp_path / "a.npz")
    file.write_bytes(described("|u1", f"({2**40},)") + file.read_bytes())
    assert read_npz(file)[0].shape == (6, 1, 8, 8)


def test_names_in_a_zip_cannot_control_a_terminal(tmp_path):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number in range(1000):
            archive.writestr(f"\x1b[2J{number}.npy", b"")
    (tmp_path / "a.npz").write_bytes(content.getvalue())
    for read in (read_npz, read_npz_images):
        with pytest.raises(BadInput) as caught:
            read(tmp_path / "a.npz")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500
