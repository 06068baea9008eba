"""Pyramids: the rate asked for, fewer bytes than image files, nothing lost when levels merge."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image

from logcl import Memory
from logcl.codecs.base import Fitted
from logcl.codecs.image_file import ImageFileSettings
from logcl.codecs.pyramid import context as pyramid_context
from logcl.codecs.pyramid import layout as pyramid_layout
from logcl.codecs.pyramid import streams as pyramid_streams
from logcl.codecs.pyramid.codec import Pyramid, PyramidSettings, PyramidSpec, _encoded
from logcl.codecs.pyramid.codes import joined
from logcl.codecs.pyramid.context import Format
from logcl.codecs.pyramid.networks import LATEST
from logcl.core.errors import BadSettings, Damaged
from tests.helpers import code_bytes, decoded, fit_codec, merge_input, photographs, psnr, smooth

GOLDEN = {
    1: "44a9cc284e553309bd04ee3d6873b95e330ff85f62eb630b2bb820aa24a0c318",
    2: "3b8353bb1a49b2fede2d4b1a502b0cf23f7236b570b6456a44669cebb52fb13a",
}
"""Digests of streams by version of the networks."""
COUNT = 48
SHAPES = [(1, 28, 28), (3, 32, 32), (3, 7, 30), (1, 1, 9), (3, 2, 1), (3, 33, 18)]


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return photographs(COUNT, 32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_transform_loses_nothing(shape):
    x = torch.from_numpy(smooth(3, shape)) / 255
    coefficients, means = pyramid_layout.analyse(x)
    plane = means[:, :, None, None]
    for stage, found in reversed(list(zip(pyramid_layout.stages(shape), coefficients, strict=True))):
        plane = pyramid_layout.raise_stage(stage, plane, found)
    assert torch.allclose(pyramid_layout.to_pixels(plane.clone()), x, atol=1e-5)


@given(
    shape=st.sampled_from(SHAPES), count=st.integers(1, 12), step=st.integers(0, 255),
    seed=st.integers(0, 99), noise=st.booleans(),
)  # fmt: skip
@hypothesis_settings(max_examples=12)
def test_streams_decode_to_what_was_encoded(shape, count, step, seed, noise):
    """Also pure noise of black and white, whose integers are far from what the networks expect."""
    rng = np.random.default_rng(seed)
    x = rng.choice([0, 255], (count, *shape)).astype(np.uint8) if noise else smooth(count, shape, seed)
    group = pyramid_context.together(shape)
    steps = np.full(-(-count // group), step)
    counts = np.full(len(steps), group)
    counts[-1] = count - group * (len(steps) - 1)
    streams, rebuilt = pyramid_streams.encode(torch.from_numpy(x) / 255, steps)
    again = pyramid_streams.decode(streams, steps, counts, Format(shape, LATEST), "level-0")
    assert np.abs(again.numpy().astype(int) - rebuilt.numpy()).max() <= 1


@pytest.mark.parametrize("version", GOLDEN)
def test_the_same_images_are_the_same_bytes_on_every_machine(version):
    """What decodes is integers only. If this fails, memories of earlier versions cannot be read."""
    form = Format((3, 32, 32), version)
    x = torch.from_numpy(smooth(16, (3, 32, 32))) / 255
    steps, counts = np.full(4, 64), np.full(4, 4)
    found = pyramid_streams.encode((x * 64).round() / 64, steps, version)[0]
    given = pyramid_streams.symbols(found, steps, counts, form, "level-0")
    again = pyramid_streams.recode(given, counts, steps, steps, form)
    assert np.array_equal(again.words, found.words)
    pattern = [(np.arange(part.size).reshape(part.shape) * 7919 >> 5) % 5 - 2 for part in given.symbols]
    fixed = pyramid_streams.Integral(np.arange(given.means.size).reshape(given.means.shape) % 50, pattern)
    coded = pyramid_streams.recode(fixed, np.full(8, 2), np.full(8, 64), np.full(8, 64), form)
    assert hashlib.sha256(coded.words.astype("<u2").tobytes()).hexdigest() == GOLDEN[version]


@pytest.mark.parametrize("target", [24.0, 30.0, 34.0])
def test_the_quality_asked_for_is_reached(x, target):
    fitted = fit_codec(x, PyramidSettings(psnr=target))
    assert psnr(x[fitted.order], decoded(fitted)) == pytest.approx(target, abs=0.2)


@pytest.mark.parametrize("target", [40.0, 120.0, 400.0])
def test_the_bytes_asked_for_are_taken(x, target):
    fitted = fit_codec(x, PyramidSettings(bytes_per_sample=target))
    assert code_bytes(fitted.codes) / len(x) == pytest.approx(target, rel=0.05)


@pytest.mark.parametrize("grey", [True, False])
def test_photographs_take_fewer_bytes_than_as_image_files(x, grey):
    images = x[:, :1] if grey else x
    ours = fit_codec(images, PyramidSettings(psnr=29))
    files = fit_codec(images, ImageFileSettings(psnr=29, speed=6))
    assert code_bytes(ours.codes) < 0.95 * code_bytes(files.codes)
    whole = 0
    for image in images:
        content = io.BytesIO()
        pixels = image[0] if grey else image.transpose(1, 2, 0)
        Image.fromarray(np.ascontiguousarray(pixels)).save(content, "WEBP", quality=50, method=6)
        whole += len(content.getvalue())
    assert code_bytes(ours.codes) < 0.7 * whole


def test_merged_samples_keep_their_integers(x):
    settings = PyramidSettings(psnr=28)
    one, two = fit_codec(x[:20], settings), fit_codec(x[20:30], PyramidSettings(psnr=33))
    merged = fit_codec(merge_input(one, two, new=x[30:]), settings)
    assert merged.kept
    before = np.concatenate([decoded(one), decoded(two)])
    assert np.abs(decoded(merged)[:30].astype(int) - before).max() <= 1


def test_streams_of_earlier_networks_are_read_and_merged_without_loss(x):
    """A level of an earlier version: new samples are coded with the latest networks, and so are its own."""
    settings = PyramidSettings(psnr=28)
    codes = _encoded(x[:24], 70, networks=1)[0]
    codec = Pyramid(PyramidSpec(image_shape=(3, 32, 32), networks=1, step=70))
    old = Fitted(codec, codes, np.arange(24))
    assert psnr(x[:24], decoded(old)) > 24
    merged = fit_codec(merge_input(old, new=x[24:]), settings)
    assert merged.kept
    assert merged.codec.spec.networks == LATEST
    before, after = codes.integers(np.arange(24)), merged.codes.integers(np.argsort(merged.order)[:24])
    assert np.array_equal(before.means, after.means)
    assert all(map(np.array_equal, before.symbols, after.symbols))
    assert len(codec.coarsen(codes, 3).decode()) == 24


@given(rows=st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=30))
@hypothesis_settings(max_examples=5)
def test_selected_samples_are_what_they_were(x, pair, rows):
    codec, codes, images = pair
    some = codes.select(np.array(rows))
    assert len(some) == len(rows)
    again = codec.decode(some, np.arange(len(rows))).numpy()
    assert np.abs(again.astype(int) - images[rows]).max() <= 1


@pytest.fixture(scope="module")
def pair(x):
    one, two = fit_codec(x[:21], PyramidSettings(psnr=27)), fit_codec(x[21:], PyramidSettings(psnr=31))
    merged = fit_codec(merge_input(one, two), PyramidSettings(psnr=27))
    return merged.codec, merged.codes, decoded(merged)


def test_recoding_takes_no_longer_if_one_stream_is_fuller_than_the_others(monkeypatch):
    """A forged level of single images with a full stream now and then took sixteen times as long."""
    shape, rooms, symbols = (1, 8, 8), [], pyramid_streams.symbols
    some = smooth(400, shape)

    def seen(streams, steps, counts, *more):
        rooms.append(len(counts) * int(counts.max()))
        return symbols(streams, steps, counts, *more)

    parts = [_encoded(some[row : row + 1], 70 + row % 2, networks=1)[0] for row in range(336)]
    for at in range(4):
        parts.insert(80 * at, _encoded(some[336 + 16 * at : 352 + 16 * at], 90, networks=1)[0])
    codes = joined(parts)
    monkeypatch.setattr(pyramid_context, "at_once", lambda _: 8)
    monkeypatch.setattr(pyramid_streams, "symbols", seen)
    again = codes.recoded(codes.steps.astype(np.int64), LATEST)
    assert sum(rooms) < 1.5 * len(codes)
    rows = np.arange(len(codes))
    before, after = codes.integers(rows), again.integers(rows)
    assert np.array_equal(before.means, after.means)
    assert all(np.array_equal(a, b) for a, b in zip(before.symbols, after.symbols, strict=True))
    assert again.counts.tolist() == codes.counts.tolist()


def test_coarser_steps_lose_little_more_than_encoding_so_from_the_start(x):
    fine = fit_codec(x, PyramidSettings(psnr=33))
    coarse = fine.codec.coarsen(fine.codes, 3)
    target = psnr(x[fine.order], fine.codec.decode(coarse, np.arange(len(x))).numpy())
    straight = fit_codec(x, PyramidSettings(psnr=target))
    assert code_bytes(coarse) < 1.15 * code_bytes(straight.codes) < 0.7 * code_bytes(fine.codes)


def test_it_refuses_what_it_has_no_networks_for():
    with pytest.raises(BadSettings, match="--codec"):
        fit_codec(smooth(4, (2, 20, 20)), PyramidSettings(psnr=30))


def test_damaged_streams_are_refused(x):
    fitted = fit_codec(np.ascontiguousarray(x[:8, :1, ::2, ::2]), PyramidSettings(psnr=28))
    found, rng = 0, np.random.default_rng(0)
    for _ in range(12):
        tensors = {key: value.clone() for key, value in fitted.codes.tensors().items()}
        tensors["words"][rng.integers(len(tensors["words"]))] ^= 1 << int(rng.integers(8))
        codes = fitted.codec.restore_codes(tensors, np.arange(8), 10**6, "level-3")
        try:
            fitted.codec.decode(codes, np.arange(8))
        except Damaged as error:
            found += "level-3" in str(error)
    assert found == 12


def test_a_memory_of_pyramids_is_saved_merged_and_verified(tmp_path, x):
    memory = Memory.open(tmp_path / "m.logcl", (3, 32, 32), unit=4, settings={"codec.name": "pyramid"})
    for start in range(0, COUNT, 12):
        memory.absorb(x[start : start + 12], np.arange(12) % 3)
    again = Memory.open(tmp_path / "m.logcl")
    assert again.verify() == []
    assert max(run.generation for level in again.snapshot().levels for run in level.about.runs) == 0


def test_images_for_training_are_not_restored():
    """They are farther from the originals, and nothing else about them changes."""
    x = photographs(16, 32)
    fitted = fit_codec(x, PyramidSettings(psnr=27))
    plain = fitted.codec.for_training()
    images = plain.decode(fitted.codes, np.arange(16)).numpy()
    assert plain.spec == fitted.codec.spec
    assert psnr(x, decoded(fitted)) - 1 < psnr(x, images) < psnr(x, decoded(fitted)) - 0.1
