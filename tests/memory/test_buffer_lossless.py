"""The buffer's images are compressed without loss, and a forged chunk is refused before it is decoded."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_images

from logcl.core.errors import Damaged
from logcl.memory import buffer, lossless
from logcl.memory.buffer import Chunk
from logcl.memory.samples import raw
from logcl.nn import blobs
from tests.helpers import smooth


def chunk_of(x: np.ndarray) -> bytes:
    return buffer.to_bytes(Chunk(1, len(x), raw(x, np.zeros(len(x), np.int64))))


def photographs(count: int, side: int) -> np.ndarray:
    """Pieces of two real photographs: (count, 3, side, side)."""
    pieces = [
        image[top : top + side, left : left + side]
        for image in load_sample_images().images
        for top in range(0, image.shape[0] - side, side)
        for left in range(0, image.shape[1] - side, side)
    ]
    return np.stack(pieces[:count]).transpose(0, 3, 1, 2)


def drawn(count: int, side: int) -> np.ndarray:
    """Images as smooth as photographs that were shrunk from millions of pixels."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    fine = [
        np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)) for image in coarse
    ]
    return np.clip(np.stack(fine) + rng.integers(-1, 2, (count, side, side, 1)), 0, 255).astype(
        np.uint8
    ).transpose(0, 3, 1, 2)  # fmt: skip


@pytest.mark.parametrize(("x", "ratio"), [(drawn(100, 64), 0.5), (photographs(100, 64), 0.62)])
def test_photographs_take_far_fewer_bytes_than_with_deflate(x, ratio):
    assert len(x) >= 100
    assert len(chunk_of(x)) <= ratio * len(zlib.compress(np.ascontiguousarray(x).data, 9))


def test_small_chunks_are_never_larger_than_with_deflate():
    for x in (np.zeros((1, 1, 8, 8), np.uint8), smooth(1, (3, 8, 8)), np.arange(40).reshape(2, 1, 4, 5)):
        packed = lossless.compress(x.astype(np.uint8))
        assert sum(map(len, packed.values())) <= len(zlib.compress(x.astype(np.uint8).tobytes(), 9))


@st.composite
def images(draw) -> np.ndarray:
    """Noise, constants and smooth images, 1 to 40 of them with sides of 1 to 40 pixels."""
    count, channels = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    height, width = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    assume(height * width > 1)  # no memory has images of one pixel
    rng, kind = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.sampled_from("ncrst"))
    shape = (count, channels, height, width)
    if kind == "n":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if kind == "c":
        return np.full(shape, rng.integers(256), np.uint8)
    if kind == "r":  # one colour per image
        return np.broadcast_to(rng.integers(0, 256, (count, channels, 1, 1), dtype=np.uint8), shape)
    if kind == "t":  # few colours
        return rng.choice(np.array([0, 1, 254, 255], np.uint8), shape)
    ramps = np.add.outer(np.arange(height), np.arange(width)) * rng.integers(0, 9, (count, channels, 1, 1))
    return (ramps % 256).astype(np.uint8)


@given(
    images(), st.sampled_from([2**16, 500, 1]), st.sampled_from([2**20, 300]), st.sampled_from([16_383, 50])
)
@settings(max_examples=150, deadline=None)
@example(np.zeros((5000, 1, 4, 1), np.uint8), 2**16, 2**20, 16_383)
@example(smooth(1, (3, 1030, 1030)), 2**16, 2**20, 16_383)
@example(smooth(3, (1, 2, 4096)), 2**16, 2**20, 16_383)
@example(smooth(2, (5, 300, 300)), 2**16, 2**20, 16_383)
def test_images_come_back_exactly(x, shared, largest, tallest):
    """Both ways of writing, wherever pictures are cut."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in (("_SHARED", shared), ("_LARGEST", largest), ("_TALLEST", tallest)):
            patch.setattr(lossless, key, value)
        chunk = buffer.from_bytes(chunk_of(x), x.shape[1:], "chunk")
        assert np.array_equal(chunk.samples.x, x)
        assert chunk.samples.x.flags.c_contiguous
        patch.setattr(zlib, "compress", lambda data, level: bytes(10**7))  # so that WebP is smaller
        packed = lossless.compress(x)
        assert set(packed) == {lossless.WEBP}
        assert np.array_equal(lossless.decompress(packed, len(x), x.shape[1:], "chunk"), x)


def test_many_blank_images_are_padded_and_still_read():
    """A reader refuses more than eight samples per byte; blank images of one class take far less."""
    chunk = buffer.from_bytes(chunk_of(np.zeros((100_000, 1, 1, 2), np.uint8)), (1, 1, 2), "chunk")
    assert chunk.samples.x.shape == (100_000, 1, 1, 2)


def test_equal_samples_give_equal_bytes(monkeypatch):
    x = smooth(60, (3, 64, 64))
    first = chunk_of(x)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert chunk_of(np.asfortranarray(x)) == first


@pytest.mark.parametrize("fault", ["changes a pixel", "fails", "is not there"])
def test_a_faulty_webp_loses_nothing(fault, monkeypatch):
    """The buffer is the only copy of its samples: if WebP changes any pixel, they are deflated instead."""
    x, genuine = smooth(4, (3, 32, 32)), Image.Image.save

    def save(image, file, *arguments, **options):
        if fault == "fails":
            raise OSError("encoding error 1")
        if fault == "is not there":
            raise KeyError("WEBP")
        changed = np.asarray(image).copy()
        changed[-1, -1, -1] ^= 1
        genuine(Image.fromarray(changed), file, *arguments, **options)

    monkeypatch.setattr(Image.Image, "save", save)
    assert set(lossless.compress(x)) == {lossless.DEFLATED}
    assert np.array_equal(buffer.from_bytes(chunk_of(x), (3, 32, 32), "chunk").samples.x, x)


def test_deflated_chunks_of_earlier_versions_are_read():
    x = smooth(9, (3, 16, 16))
    about, tensors = blobs.unpack(chunk_of(x), buffer.Description, "chunk")
    assert lossless.WEBP in tensors
    pixels = torch.from_numpy(np.frombuffer(zlib.compress(x.tobytes(), 9), np.uint8).copy())
    old = blobs.pack(about, {"pixels": pixels, "labels": tensors["labels"]})
    assert np.array_equal(buffer.from_bytes(old, (3, 16, 16), "chunk").samples.x, x)


def saved(x: np.ndarray, *others: np.ndarray, mode: str = "RGB", **options) -> bytes:
    """A picture as WebP; with others, an animation."""
    pictures = [Image.fromarray(array).convert(mode) for array in (x, *others)]
    file = io.BytesIO()
    more = {"save_all": True, "append_images": pictures[1:]} if others else {}
    pictures[0].save(file, "WEBP", **{"lossless": True, "exact": True, **more, **options})
    return file.getvalue()


PICTURE = smooth(1, (3, 64, 16))[0].transpose(1, 2, 0)  # four images of 16x16, one below the other
GENUINE = saved(PICTURE)


def resized(width: int, height: int) -> bytes:
    """A picture whose header claims another size."""
    return GENUINE[:21] + struct.pack("<I", (width - 1) | (height - 1) << 14) + GENUINE[25:]


FORGED = {
    "nothing": b"",
    "garbage": bytes(range(256)),
    "other dimensions": saved(PICTURE[:32]),
    "dimensions exchanged": saved(PICTURE.transpose(1, 0, 2).copy()),
    "a size of gigabytes": resized(16_384, 16_384),
    "the size of an image less": resized(16, 48),
    "the size of an image more": resized(16, 80),
    "truncated": GENUINE[:-9],
    "truncated, and said so": GENUINE[:4] + struct.pack("<I", len(GENUINE) - 17) + GENUINE[8:-9],
    "truncated to the header": GENUINE[:25],
    "a length of gigabytes": GENUINE[:4] + b"\xff\xff\xff\xff" + GENUINE[8:],
    "a length of nothing": GENUINE[:4] + bytes(4) + GENUINE[8:],
    "bytes behind": GENUINE + b"\0",
    "two pictures": GENUINE + GENUINE,
    "two pictures of half the size": saved(PICTURE[:32]) + saved(PICTURE[32:]),
    "an animation": saved(PICTURE, PICTURE[::-1].copy()),
    "lossy": saved(PICTURE, lossless=False),
    "transparent": saved(np.dstack([PICTURE, PICTURE[..., :1]]), mode="RGBA"),
    "with metadata": saved(PICTURE, exif=b"Exif\0\0" + bytes(40)),
    "garbage inside": GENUINE[:40] + bytes(b ^ 0x5A for b in GENUINE[40:]),
    "zeros inside": GENUINE[:25] + bytes(len(GENUINE) - 25),
    "PNG": b"\x89PNG\r\n\x1a\n" + bytes(60),
}


def chunk_with(content: bytes, **more: torch.Tensor) -> bytes:
    """Four colour images of 16x16 whose pixels are this WebP file."""
    x = PICTURE.reshape(4, 16, 16, 3).transpose(0, 3, 1, 2)
    about, tensors = blobs.unpack(chunk_of(x), buffer.Description, "chunk")
    webp = torch.from_numpy(np.frombuffer(content, np.uint8).copy())
    return blobs.pack(about, {**tensors, lossless.WEBP: webp, **more})


def test_the_genuine_picture_is_read():
    x = buffer.from_bytes(chunk_with(GENUINE), (3, 16, 16), "chunk").samples.x
    assert np.array_equal(x.transpose(0, 2, 3, 1).reshape(64, 16, 3), PICTURE)


@pytest.mark.parametrize("content", FORGED.values(), ids=FORGED.keys())
def test_forged_pictures_are_refused(content):
    tracemalloc.start()
    with pytest.raises(Damaged, match=r"^part buffer-1 cannot be decompressed \(.+\); `logcl verify`"):
        buffer.from_bytes(chunk_with(content), (3, 16, 16), "part buffer-1")
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


@given(st.integers(25, len(GENUINE) - 1), st.integers(1, 255))
@settings(max_examples=100, deadline=None)
def test_a_changed_byte_gives_other_images_or_is_refused(place, change):
    forged = bytearray(GENUINE)
    forged[place] ^= change
    try:
        chunk = buffer.from_bytes(chunk_with(bytes(forged)), (3, 16, 16), "chunk")
    except Damaged:
        return
    assert chunk.samples.x.shape == (4, 3, 16, 16)


def test_only_one_way_of_compressing_at_a_time():
    """Neither both nor none, nor of another type or shape."""
    deflated = torch.from_numpy(np.frombuffer(zlib.compress(PICTURE.tobytes()), np.uint8).copy())
    webp = torch.from_numpy(np.frombuffer(GENUINE, np.uint8).copy())
    for more in (
        {lossless.DEFLATED: deflated}, {lossless.WEBP: webp[None]}, {lossless.WEBP: webp.to(torch.int16)},
        {"strange": webp},
    ):  # fmt: skip
        with pytest.raises(Damaged, match="chunk does not hold what it describes"):
            buffer.from_bytes(chunk_with(GENUINE, **more), (3, 16, 16), "chunk")


@pytest.mark.parametrize("lie", [{"count": 5}, {"count": 3}, {"count": 50, "stop": 50}, {"start": 2}])
def test_false_claims_about_pictures_are_refused(lie):
    about, tensors = blobs.unpack(chunk_with(GENUINE), buffer.Description, "chunk")
    with pytest.raises(Damaged, match="chunk"):
        buffer.from_bytes(blobs.pack(about.model_copy(update=lie), tensors), (3, 16, 16), "chunk")


def test_a_claim_without_pictures_is_refused_before_it_is_allocated():
    shape = (3, 4096, 4096)
    about, tensors = blobs.unpack(chunk_with(GENUINE), buffer.Description, "chunk")
    about = about.model_copy(update={"count": 4000, "stop": 4000, "image_shape": shape})
    with pytest.raises(Damaged, match="too few bytes"):
        buffer.from_bytes(blobs.pack(about, tensors), shape, "chunk")
