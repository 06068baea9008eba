"""Image files: exact without their common bytes, of the rate asked for, copied when levels merge."""

from __future__ import annotations

import io
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image

from logcl import Memory
from logcl.codecs import registry
from logcl.codecs.image_file import ImageFileSettings, containers
from logcl.codecs.image_file.codes import FileCodes
from logcl.codecs.image_file.containers import CONTAINERS, LOWEST
from logcl.core.errors import BadSettings, Damaged
from logcl.nn import blobs
from tests.helpers import code_bytes, decoded, fit_codec, merge_input, photographs, psnr

FORMATS = sorted(CONTAINERS)


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return photographs(96, 32)


@pytest.mark.parametrize("name", FORMATS)
@given(
    channels=st.sampled_from([1, 3]), height=st.integers(1, 40), width=st.integers(1, 40),
    quality=st.integers(0, 100), seed=st.integers(0, 99),
)  # fmt: skip
@hypothesis_settings(max_examples=25, deadline=None)
def test_a_shell_and_a_payload_are_the_file(name, channels, height, width, quality, seed):
    image = np.random.default_rng(seed).integers(0, 256, (channels, height, width), dtype=np.uint8)
    container = CONTAINERS[name]
    shell, code = container.encode(image, quality, speed=9)
    assert container.size(shell) == (height, width)
    content = io.BytesIO()
    pixels = image[0] if channels == 1 else np.ascontiguousarray(image.transpose(1, 2, 0))
    options = container.options(channels == 1, quality, 9)
    Image.fromarray(pixels).save(content, container.name, **options)
    assert container.wrap(shell, code[1:]) == content.getvalue()
    assert container.decode(shell, code, channels == 1).shape == image.shape


@pytest.mark.parametrize("name", FORMATS)
def test_quality_continues_below_zero(name, x):
    container = CONTAINERS[name]
    sizes, errors = [], []
    for quality in (40, 0, -16, -32, LOWEST):
        found = [container.encode(image, quality, 9) for image in x[:24]]
        sizes.append(sum(len(code) for _, code in found))
        images = np.stack([container.decode(shell, code, False) for shell, code in found])
        errors.append(psnr(x[:24], images))
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("target", [24.0, 30.0, 34.0])
def test_the_quality_asked_for_is_reached(x, target):
    fitted = fit_codec(x, ImageFileSettings(psnr=target, speed=8))
    assert psnr(x, decoded(fitted)) == pytest.approx(target, abs=0.2)


@pytest.mark.parametrize("target", [40.0, 120.0, 400.0])
def test_the_bytes_asked_for_are_taken(x, target):
    fitted = fit_codec(x, ImageFileSettings(bytes_per_sample=target, speed=8))
    assert code_bytes(fitted.codes) / len(x) == pytest.approx(target, rel=0.05)


def test_images_that_become_harder_are_balanced(x):
    """The first are all alike, as when a task is sorted by class; the mean still meets the target."""
    order = np.argsort(x.reshape(len(x), -1).std(axis=1))
    fitted = fit_codec(x[order], ImageFileSettings(psnr=30, speed=8))
    assert psnr(x[order], decoded(fitted)) == pytest.approx(30, abs=0.3)


def test_merged_levels_keep_their_bytes(x):
    settings = ImageFileSettings(psnr=28, speed=8)
    first = fit_codec(x[:40], settings)
    second = fit_codec(x[40:64], settings, [first.codec])
    both = fit_codec(merge_input(first, second, new=x[64:]), settings)
    assert both.kept
    old = [first.codes.entry(row) for row in range(40)] + [second.codes.entry(row) for row in range(24)]
    assert [both.codes.entry(row) for row in range(64)] == old


def test_a_memory_has_no_second_generation_and_stores_shells_once(tmp_path, x):
    memory = Memory.open(
        tmp_path / "m.logcl", (3, 32, 32), unit=8, settings={"codec.name": "image_file", "codec.psnr": 28}
    )
    for start in range(0, 88, 8):
        memory.absorb(x[start : start + 8], np.arange(8))
    now = memory.snapshot()
    assert [run.generation for run in now.runs] == [0] * len(now.runs)
    assert all(len(run.errors) == 1 for run in now.runs)
    assert len({level.codec.shells for level in now.levels}) == 1
    assert psnr(x[:88], now.everything()[0].numpy()) == pytest.approx(28, abs=0.3)
    assert memory.verify() == []


def test_files_of_another_pillow_stand_beside_those_of_this_one(x, monkeypatch):
    """Boxes may differ from version to version; what is stored must stay readable."""
    settings = ImageFileSettings(psnr=28, speed=8)
    container = CONTAINERS["avif"]
    with monkeypatch.context() as patch:
        encode = container.encode
        patch.setattr(
            container, "encode", lambda *a: (encode(*a)[0].replace(b"Color", b"Shade"), encode(*a)[1])
        )
        older = fit_codec(x[:16], settings)
    newer = fit_codec(x[16:32], settings)
    both = fit_codec(merge_input(older, newer, new=x[32:40]), settings)
    assert len(both.codec.shells) == 2
    assert np.array_equal(decoded(both)[:32], np.concatenate([decoded(older), decoded(newer)]))
    again = registry.from_bytes(both.codec.to_bytes(), "weights")
    assert np.array_equal(again.decode(both.codes, np.arange(40)).numpy(), decoded(both))


@pytest.mark.parametrize("name", FORMATS)
def test_shells_of_other_sizes_are_refused(name, x):
    """The decoder allocates what the shell says, so it must say what the description says."""
    codec = fit_codec(x[:4], ImageFileSettings(psnr=28, speed=8, format=name)).codec
    larger = CONTAINERS[name].encode(photographs(1, 64)[0], 50, 8)[0]
    weights = {
        "shells": torch.from_numpy(np.frombuffer(larger, np.uint8).copy()),
        "sizes": torch.tensor([len(larger)], dtype=torch.int32),
    }
    with pytest.raises(Damaged, match="another size"):
        registry.from_bytes(blobs.pack(codec.spec, weights), "weights-0")


@pytest.mark.parametrize("name", FORMATS)
@given(seed=st.integers(0, 10**6))
@hypothesis_settings(max_examples=40, deadline=None)
def test_forged_files_are_refused_or_decode_to_an_image(name, x, seed):
    fitted = fit_codec(x[:2], ImageFileSettings(psnr=24, speed=9, format=name))
    rng = np.random.default_rng(seed)
    code = bytearray(fitted.codes.entry(0))
    for _ in range(rng.integers(1, 6)):
        code[rng.integers(len(code))] = rng.integers(256)
    forged = FileCodes.of([bytes(code[: rng.integers(1, len(code) + 1)]), fitted.codes.entry(1)])
    images = None
    with suppress(Damaged):
        images = fitted.codec.decode(forged, np.arange(2))
    assert images is None or images.shape == (2, 3, 32, 32)


def test_more_shells_than_a_codec_may_have_are_refused_before_they_are_written(x):
    """They were written, and could not be read again."""
    settings = ImageFileSettings(psnr=28, speed=9)
    fits = [fit_codec(x[start : start + 4], settings) for start in (0, 4)]
    for number, fitted in enumerate(fits):
        fitted.codec.shells += tuple(b"%d-%d" % (number, shell) for shell in range(60))
    with pytest.raises(Damaged, match="more than 64 different headers"):
        fit_codec(merge_input(*fits, new=x[8:9]), settings)


@pytest.mark.parametrize("more", ["padding", "frames", "one frame"])
def test_shells_of_more_than_one_frame_are_refused(x, more):
    """Shells are stored once but parsed and decoded for every image: 200 kB took 50 ms each."""
    codec = fit_codec(x[:4], ImageFileSettings(psnr=28, speed=8)).codec
    shell, payload = CONTAINERS["avif"].encode(x[0] // 8, 10, 8)
    frame = bytes([0x32]) + containers._leb128(len(payload) - 1) + payload[1:]
    units = {"padding": b"\x7a\0" * 100_000, "frames": frame * 20, "one frame": frame}[more]
    forged = shell[:-1] + units + shell[-1:]
    assert CONTAINERS["avif"].wrap(forged, payload[1:])
    weights = {
        "shells": torch.from_numpy(np.frombuffer(forged, np.uint8).copy()),
        "sizes": torch.tensor([len(forged)], dtype=torch.int32),
    }
    with pytest.raises(Damaged, match=r"too long|more than one frame"):
        registry.from_bytes(blobs.pack(codec.spec, weights), "weights-0")


def test_shells_that_are_garbage_are_refused(x):
    codec = fit_codec(x[:4], ImageFileSettings(psnr=28, speed=8)).codec
    rng, shell = np.random.default_rng(0), codec.shells[0]
    for _ in range(300):
        forged = bytearray(shell)
        for _ in range(rng.integers(1, 4)):
            forged[rng.integers(len(forged))] = rng.integers(256)
        forged = forged[: rng.integers(1, len(forged) + 1)]
        weights = {
            "shells": torch.tensor(list(forged), dtype=torch.uint8),
            "sizes": torch.tensor([len(forged)], dtype=torch.int32),
        }
        with suppress(Damaged):
            found = registry.from_bytes(blobs.pack(codec.spec, weights), "weights-0")
            assert CONTAINERS["avif"].size(found.shells[0]) == (32, 32)


def test_images_with_two_channels_are_refused():
    with pytest.raises(BadSettings, match=r"1 or 3 channels.*2x8x8.*--codec"):
        fit_codec(np.zeros((3, 2, 8, 8), np.uint8), ImageFileSettings(psnr=30))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 64)])
@pytest.mark.parametrize("value", [0, 90, 255])
def test_uniform_images_stay_as_they_are(shape, value):
    """They cost next to nothing at any quality, so there is nothing to gain from an error."""
    x = np.full((40, *shape), value, np.uint8)
    assert psnr(x, decoded(fit_codec(x, ImageFileSettings(psnr=26.5, speed=9)))) > 35


def test_quality_is_reached_where_it_jumps():
    """Blocks of noise: one step of quality more may mean several dB."""
    x = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), dtype=np.uint8).repeat(8, 2).repeat(8, 3)
    assert psnr(x, decoded(fit_codec(x, ImageFileSettings(psnr=30, speed=8)))) > 29.8
