"""The cosine codec: it loses nothing but its rounding, and meets targets of bytes and quality."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl.codecs import cosine
from logcl.codecs.base import Codec, Fitted
from logcl.codecs.coding import entropy
from logcl.codecs.cosine import (
    Cosine,
    CosineSettings,
    CosineSpec,
    block,
    coefficients,
    grid,
    rounded,
)
from logcl.codecs.quantised import FINENESS
from logcl.nn.images import to_unit
from tests.helpers import decoded, error, fit_codec, psnr, smooth

SHAPES = [(1, 8, 8), (3, 32, 32), (3, 40, 33), (2, 70, 31)]
BLOCKS = {(1, 8, 8): 1, (3, 32, 32): 1, (3, 40, 33): 4, (2, 70, 31): 3}


def code(x: np.ndarray, start: Codec | None = None, **target: float) -> Fitted:
    return fit_codec(x, CosineSettings(**target), [start] if start else [])


def bytes_per_sample(fitted: Fitted) -> float:
    return len(fitted.codes.coded.data) / len(fitted.codes)


def inverse(shape: tuple[int, int, int], step: float = 1.0) -> Cosine:
    return Cosine(CosineSpec(image_shape=shape, step=step))


@pytest.mark.parametrize("shape", [*SHAPES, (2, 64, 60)])
def test_cosines_keep_the_energy_of_an_image(shape):
    """Orthonormal: an error in the coefficients is the same error in the pixels."""
    _, height, width = shape
    found = coefficients(to_unit(torch.from_numpy(smooth(5, shape))))
    assert found.shape == (5 * BLOCKS.get(shape, 4), math.prod(block(shape)))
    # Blocks are equal, so the last ones may repeat an edge; without that they hold the image exactly once.
    rows, columns = -(-height // 32), -(-width // 32)
    padded = np.pad(smooth(5, shape), ((0, 0), (0, 0), (0, -height % rows), (0, -width % columns)), "edge")
    energy = np.square(padded / 255 - 0.5).sum(axis=(1, 2, 3))
    assert np.allclose(found.reshape(5, -1).square().sum(1), energy, rtol=1e-4)


@pytest.mark.parametrize("side", [1, 2, 3, 7, 31, 32])
def test_the_basis_is_orthonormal(side):
    found = coefficients(torch.eye(side).reshape(side, side, 1, 1).expand(-1, -1, 1, 2) + 0.5)
    # A constant pair of pixels has only a mean, which is √2 of either.
    kept = found.reshape(side, side, 2)
    assert torch.allclose(kept[..., 1], torch.zeros(side, side), atol=1e-6)
    assert torch.allclose(kept[..., 0].T @ kept[..., 0] / 2, torch.eye(side), atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_decoder_inverts_the_coefficients(shape):
    images = torch.rand((3, *shape), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(inverse(shape).images(coefficients(images) / FINENESS), images, atol=1e-5)
    assert torch.allclose(inverse(shape, 0.25).images(4 * coefficients(images) / FINENESS), images, atol=1e-5)


@given(channels=st.integers(1, 5), height=st.integers(1, 70), width=st.integers(1, 70))
@hypothesis_settings(max_examples=25)
def test_blocks_cover_images_of_any_shape(channels, height, width):
    assume(height * width > 1)
    shape = channels, height, width
    images = torch.rand((2, *shape), generator=torch.Generator().manual_seed(0))
    found = coefficients(images)
    assert found.shape == (2 * math.prod(grid(shape)), math.prod(block(shape)))
    assert torch.allclose(inverse(shape).images(found / FINENESS), images, atol=1e-5)


@pytest.mark.parametrize("target", [24, 30, 36])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 40, 33)])
def test_quality_is_what_was_asked_for(shape, target):
    x = smooth(48, shape)
    result = code(x, psnr=target)
    assert psnr(x, decoded(result)) == pytest.approx(target, abs=0.7)


@pytest.mark.parametrize("target", [20, 60, 180])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 40, 33)])
def test_bytes_are_what_was_asked_for(shape, target):
    x = smooth(96, shape)
    result = code(x, bytes_per_sample=target)
    assert bytes_per_sample(result) == pytest.approx(target, rel=0.15)


def test_more_bytes_give_less_error():
    x = smooth(48, (3, 32, 32))
    errors = [error(x, decoded(code(x, bytes_per_sample=b))) for b in (15, 60, 240)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 70, 31)])
@pytest.mark.parametrize("target", [28, 38])
def test_encoding_again_adds_almost_nothing(shape, target):
    """What makes re-encoding harmless: what was rounded is rounded to itself."""
    x = smooth(24, shape)
    first = code(x, psnr=target)
    once = decoded(first)
    lost = error(x, once)
    again = once
    for _ in range(3):
        result = code(again, first.codec, psnr=target)
        again = decoded(result)
    assert error(once, again) < min(0.05 * lost, 1e-4)
    assert error(x, again) < 1.05 * lost


def test_the_step_is_kept_where_quality_is_asked_for():
    """On images of the same kind, and on those that would do with a larger step."""
    shape = (3, 32, 32)
    first = code(smooth(24, shape), psnr=30)
    for others in (smooth(24, shape, seed=1), smooth(24, shape, seed=1) // 4 + 100):
        assert code(others, psnr=30).codec.spec.step != first.codec.spec.step
        assert code(others, first.codec, psnr=30).codec.spec == first.codec.spec


def test_the_step_is_kept_only_while_it_comes_near_the_bytes_asked_for():
    shape = (3, 32, 32)
    first = code(smooth(64, shape), bytes_per_sample=60)
    alike, noise = (
        smooth(64, shape, seed=1),
        np.random.default_rng(0).integers(0, 256, (64, *shape), np.uint8),
    )
    assert code(alike, first.codec, bytes_per_sample=60).codec.spec == first.codec.spec
    other = code(noise, first.codec, bytes_per_sample=60)
    assert other.codec.spec.step > 2 * first.codec.spec.step
    assert bytes_per_sample(other) == pytest.approx(60, rel=0.15)


@pytest.mark.parametrize("target", [{"psnr": 30}, {"psnr": 40}, {"bytes_per_sample": 2500}])
def test_bright_and_dark_images_stay_so_however_fine_the_steps(target):
    """The largest symbol times the step must reach an image all white: grain asks for fine steps."""
    rng = np.random.default_rng(0)
    shades = np.resize([0.0, 0.03, 0.5, 0.97, 1.0], (20, 1, 1, 1))
    x = np.rint(255 * np.clip(shades + rng.normal(0, 0.02, (20, 3, 32, 32)), 0, 1)).astype(np.uint8)
    result = code(x, **target)
    assert psnr(x, decoded(result)) > target.get("psnr", 40) - 0.7


def test_the_step_survives_its_description():
    """Few binary digits: nearly equal steps of two levels agree exactly, also after a trip through JSON."""
    spec = code(smooth(8, (1, 8, 8)), psnr=33).codec.spec
    assert float(np.float16(spec.step * FINENESS)) == spec.step * FINENESS
    assert CosineSpec.model_validate_json(spec.model_dump_json()) == spec


def test_coarsening_is_rounding_the_decoded_image_anew():
    """Where nothing is clipped: a coarser encoding needs no decoding."""
    x = smooth(24, (3, 32, 32)) // 2 + 64
    fitted = code(x, psnr=36)
    coarse = fitted.codec.coarsen(fitted.codes, 3)
    again = inverse((3, 32, 32), 3 * fitted.codec.spec.step).encode(decoded(fitted))
    rows = np.arange(24)
    assert (coarse.symbols(rows) == again.symbols(rows)).mean() > 0.99  # decoding rounds to whole pixels
    assert psnr(x, fitted.codec.decode(coarse, rows).numpy()) > 26


def test_coarsening_twice_is_coarsening_more():
    fitted = code(smooth(24, (3, 32, 32)), psnr=36)
    twice = fitted.codec.coarsen(fitted.codec.coarsen(fitted.codes, 2), 3)
    assert twice.factor == 6
    assert np.abs(twice.inputs(np.arange(24)) - fitted.codes.inputs(np.arange(24))).max() <= 6 / FINENESS


@pytest.mark.parametrize("level", [0, 128, 255])
@pytest.mark.parametrize("target", [{"psnr": 35}, {"bytes_per_sample": 10}])
def test_images_of_one_shade_are_no_special_case(level, target):
    x = np.full((3, 1, 8, 8), level, np.uint8)
    assert psnr(x, decoded(code(x, **target)) + 1e-9) > 34


def test_a_step_that_was_chosen_on_flat_images_is_not_kept_for_others():
    flat, noise = np.full((8, 1, 8, 8), 90, np.uint8), smooth(64, (1, 8, 8))
    first = code(flat, psnr=30)
    later = fit_codec(noise, CosineSettings(psnr=30), [first.codec])
    assert psnr(noise, decoded(later)) == pytest.approx(30, abs=0.2)
    again = fit_codec(noise[::-1].copy(), CosineSettings(psnr=30), [later.codec])
    assert again.codec.spec == later.codec.spec


def test_near_nothing_rounds_to_nothing():
    exact = torch.tensor([0.59, 0.61, -0.59, -0.61, 1.59, -1.61, 0.0, 1e9])
    found = rounded(exact, 1.0)
    assert found.tolist() == [0, 1, 0, -1, 1, -2, 0, entropy.LARGEST]


@pytest.mark.parametrize("shape", [(1, 70, 100), (3, 33, 64), (2, 32, 31)])
def test_large_images_are_decoded_some_blocks_at_a_time(monkeypatch, shape):
    fitted = fit_codec(smooth(5, shape), CosineSettings(psnr=30))
    whole = decoded(fitted)
    for large in (1, 5000):
        monkeypatch.setattr(cosine, "_LARGE", large)
        difference = np.abs(decoded(fitted).astype(int) - whole)
        assert difference.max() <= 1  # products of other sizes round differently
        assert difference.mean() < 1e-3
