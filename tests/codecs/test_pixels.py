"""Shades of grey in context: strokes in a fraction of an image file's bytes, and nothing lost afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl import Memory
from logcl.codecs.base import Fitted
from logcl.codecs.image_file import ImageFileSettings
from logcl.codecs.pixels import model as context_model
from logcl.codecs.pixels.codec import PixelsSettings, PixelsSpec, _trained
from logcl.codecs.pixels.model import ContextModel
from logcl.codecs.pixels.shades import lloyd
from logcl.core.errors import BadSettings, Damaged
from logcl.nn.training import Work, generator_for
from tests.helpers import code_bytes, decoded, fit_codec, merge_input, psnr, smooth, strokes

COUNT, FAST = 160, {"train_steps": 200}


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return strokes(COUNT)


@pytest.fixture(scope="module")
def fitted(x):
    return fit_codec(x, PixelsSettings(psnr=26.5, **FAST))


@pytest.mark.parametrize("target", [24.0, 26.5, 31.0])
def test_the_quality_asked_for_is_reached(x, target):
    fitted = fit_codec(x, PixelsSettings(psnr=target, **FAST))
    assert psnr(x[fitted.order], decoded(fitted)) == pytest.approx(target, abs=0.25)


@pytest.mark.parametrize("target", [6.0, 10.0])
def test_the_bytes_asked_for_are_taken(x, target):
    fitted = fit_codec(x, PixelsSettings(bytes_per_sample=target, **FAST))
    assert code_bytes(fitted.codes) / len(x) == pytest.approx(target, rel=0.1)


def test_strokes_take_less_than_half_the_bytes_of_image_files(x, fitted):
    files = fit_codec(x, ImageFileSettings(psnr=26.5, speed=6))
    assert code_bytes(fitted.codes) < 0.5 * code_bytes(files.codes)


def test_merged_samples_keep_their_pixels(x):
    """Also where new images need more shades, and where the network is another one afterwards."""
    settings = PixelsSettings(psnr=26, **FAST)
    one, two = fit_codec(x[:40], settings), fit_codec(x[40:60], PixelsSettings(psnr=31, **FAST))
    merged = fit_codec(merge_input(one, two, new=smooth(20, (1, 28, 28))), settings)
    assert merged.kept
    assert np.array_equal(decoded(merged)[:60], np.concatenate([decoded(one), decoded(two)]))


def test_levels_with_more_shades_together_than_a_codec_has_are_coded_anew(x):
    """They ended in a ValidationError, and the task could never be absorbed."""
    settings, shape, fits = PixelsSettings(psnr=31, train_steps=20), (1, 28, 28), []
    for first in range(2):
        shades = tuple(range(first, 256, 4))
        spec = PixelsSpec(image_shape=shape, shades=shades, trained=1, quality=50)
        codec = _trained(spec, x[:20], [], settings, Work(generator_for(0)), None)
        some = x[40 * first : 40 * first + 40]
        fits.append(Fitted(codec, codec.encode(some), np.arange(40)))
    merged = fit_codec(merge_input(*fits, new=x[80:90]), settings)
    assert not merged.kept
    assert len(merged.codec.spec.shades) <= 64
    before = np.concatenate([*map(decoded, fits), x[80:90]])
    assert psnr(before[merged.order], decoded(merged)) > 30


def test_a_level_starts_from_the_network_of_another_one(x, fitted):
    again = fit_codec(x[:64], PixelsSettings(psnr=26.5, **FAST), starts=[fitted.codec])
    assert again.codec.model == fitted.codec.model
    assert again.codec.to_bytes() == fitted.codec.to_bytes()


@pytest.fixture(scope="module")
def images(fitted) -> np.ndarray:
    return decoded(fitted)


@given(rows=st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=40))
@hypothesis_settings(max_examples=5)
def test_selected_samples_are_what_they_were(fitted, images, rows):
    some = fitted.codes.select(np.array(rows))
    again = fitted.codec.decode(some, np.arange(len(rows))).numpy()
    assert np.array_equal(again, images[rows])


def test_the_network_is_exact_in_any_order_of_summation(fitted):
    """The same frequencies from float64, where nothing is rounded."""
    model = fitted.codec.model
    rng = np.random.default_rng(0)
    inputs = model.layers[0][0].shape[1]
    given = rng.integers(-63, 64, (5, inputs, 200)).astype(np.float32)
    first = np.matmul(model.layers[0][0], given) + model.layers[0][1][:, None]
    double = ContextModel([(w.astype(float), b.astype(float), shift) for w, b, shift in model.layers])
    exact = np.matmul(double.layers[0][0], given.astype(float)) + double.layers[0][1][:, None]
    assert np.array_equal(model.cumulative(first.copy()), double.cumulative(exact))


def test_shades_are_where_the_pixels_are():
    x = np.array([0] * 900 + [200] * 50 + [210] * 50, np.uint8).reshape(1, 1, 25, 40)
    assert lloyd(x, (), 2) == (0, 205)
    assert lloyd(x, (0,), 2) == (0, 200, 210)
    assert len(lloyd(np.zeros((1, 1, 5, 5), np.uint8), (), 3)) >= 2


def test_it_refuses_colour():
    with pytest.raises(BadSettings, match="--codec"):
        fit_codec(smooth(4, (3, 20, 20)), PixelsSettings(psnr=30, **FAST))


def test_damaged_streams_are_refused(fitted):
    rng, found = np.random.default_rng(0), 0
    for _ in range(8):
        tensors = {key: value.clone() for key, value in fitted.codes.tensors().items()}
        tensors["words"][rng.integers(len(tensors["words"]))] ^= 1 << int(rng.integers(8))
        codes = fitted.codec.restore_codes(tensors, np.arange(COUNT), 10**6, "level-3")
        try:
            fitted.codec.decode(codes, np.arange(COUNT))
        except Damaged as error:
            found += "level-3" in str(error)
    assert found == 8


def test_a_memory_of_strokes_chooses_it_and_is_verified(tmp_path, x):
    memory = Memory.open(tmp_path / "m.logcl", (1, 28, 28), unit=16)
    for start in range(0, 96, 32):
        memory.absorb(x[start : start + 32], np.arange(32) % 3)
    again = Memory.open(tmp_path / "m.logcl")
    assert again.settings.codec.name == "pixels"
    assert again.verify() == []
    assert max(run.generation for level in again.snapshot().levels for run in level.about.runs) == 0


def test_no_frequency_is_near_a_half_before_it_is_rounded():
    """Otherwise another machine's powers could round it to another integer."""
    exact = 2.0 ** (
        context_model._SPAN - np.arange(context_model._SPAN * context_model._FINE) / context_model._FINE
    )
    assert np.abs(exact - np.floor(exact) - 0.5).min() > 1e-7
