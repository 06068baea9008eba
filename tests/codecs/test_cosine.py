"""Quantised codes: cosines lose nothing but their rounding, targets of bytes and quality are met."""

import math
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl.allocation import Slot
from logcl.codecs import entropy, quantising
from logcl.codecs.encoding import Encoding, decode
from logcl.codecs.stored import FINENESS
from logcl.core.progress import Silent
from logcl.memory.local_model import LocalModel, decoder_spec
from logcl.memory.presets import preset
from logcl.memory.samples import Run, Samples
from logcl.memory.settings import Settings, override
from logcl.nn import networks
from logcl.nn.images import to_unit
from logcl.nn.networks import CosineDecoder, coefficient_count, coefficients
from logcl.nn.training import Work, generator_for

SHAPES = [(1, 8, 8), (3, 32, 32), (3, 40, 33), (2, 70, 31)]
BLOCKS = {(1, 8, 8): 1, (3, 32, 32): 1, (3, 40, 33): 4, (2, 70, 31): 3}


def smooth(count: int, shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    """Images like photographs in what matters: amplitudes fall with the frequency, channels are alike."""
    rng = np.random.default_rng(seed)
    channels, height, width = shape
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    fall = 1 / (frequency + 1 / max(height, width)) ** 1.5

    def field(*lead: int) -> np.ndarray:
        noise = np.fft.rfft2(rng.normal(size=(*lead, height, width)))
        values = np.fft.irfft2(noise * fall, s=(height, width))
        return values / values.std()

    images = 0.45 + 0.16 * field(count, 1) + 0.04 * field(count, channels)
    return np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)


def cosines(shape: tuple[int, int, int], **target: float) -> Settings:
    changes = {f"generator.{name}": value for name, value in target.items()}
    return override(preset("fast", shape), {"generator.network": "cosine", **changes})


def code(x: np.ndarray, settings: Settings, start: object = None) -> Encoding:
    work = Work(generator_for(0))
    way = quantising.cosine_coded if settings.generator.network == "cosine" else quantising.trained
    return way(x, decoder_spec(settings), settings.generator, work, start)


def decoded(result: Encoding, x: np.ndarray) -> np.ndarray:
    return decode(result.decoder, result.codes, np.arange(len(x)), x.shape[1:]).numpy()


def error(x: np.ndarray, z: np.ndarray) -> float:
    return float(np.square((x.astype(float) - z) / 255).mean())


def psnr(x: np.ndarray, z: np.ndarray) -> float:
    return -10 * math.log10(error(x, z))


def bytes_a_sample(result: Encoding, x: np.ndarray) -> float:
    return len(result.codes.coded.data) / len(x)


def step_of(result: Encoding) -> float:
    return float(result.decoder.unit.detach()) / FINENESS


@pytest.mark.parametrize("shape", [*SHAPES, (2, 64, 60)])
def test_cosines_keep_the_energy_of_an_image(shape):
    """Orthonormal: an error in the coefficients is the same error in the pixels."""
    _, height, width = shape
    found = coefficients(to_unit(torch.from_numpy(smooth(5, shape))))
    assert found.shape == (5 * BLOCKS.get(shape, 4), coefficient_count(shape))
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
    decoder = CosineDecoder(shape)
    with torch.no_grad():
        assert torch.allclose(decoder(coefficients(images)), images, atol=1e-5)
        decoder.unit.fill_(0.25)
        assert torch.allclose(decoder(4 * coefficients(images)), images, atol=1e-5)


@given(channels=st.integers(1, 5), height=st.integers(1, 70), width=st.integers(1, 70))
@hypothesis_settings(max_examples=25)
def test_blocks_cover_images_of_any_shape(channels, height, width):
    assume(height * width > 1)
    shape = channels, height, width
    spec = networks.AutoencoderSpec(
        network="cosine", image_shape=shape, length=coefficient_count(shape), width=1
    )
    images = torch.rand((2, *shape), generator=torch.Generator().manual_seed(0))
    found = coefficients(images)
    assert len(found) == 2 * networks.codes_an_image(spec)
    with torch.no_grad():
        assert torch.allclose(CosineDecoder(shape)(found), images, atol=1e-5)


@pytest.mark.parametrize("target", [24, 30, 36])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 40, 33)])
def test_quality_is_what_was_asked_for(shape, target):
    x = smooth(48, shape)
    result = code(x, cosines(shape, psnr=target))
    assert psnr(x, decoded(result, x)) == pytest.approx(target, abs=0.7)


@pytest.mark.parametrize("target", [20, 60, 180])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 40, 33)])
def test_bytes_are_what_was_asked_for(shape, target):
    x = smooth(96, shape)
    result = code(x, cosines(shape, bytes_per_sample=target))
    assert bytes_a_sample(result, x) == pytest.approx(target, rel=0.15)


def test_more_bytes_give_less_error():
    x = smooth(48, (3, 32, 32))
    errors = [error(x, decoded(code(x, cosines((3, 32, 32), bytes_per_sample=b)), x)) for b in (15, 60, 240)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 70, 31)])
@pytest.mark.parametrize("target", [28, 38])
def test_encoding_again_adds_almost_nothing(shape, target):
    """What makes re-encoding harmless: what was rounded is rounded to itself."""
    x = smooth(24, shape)
    first = code(x, cosines(shape, psnr=target))
    once = decoded(first, x)
    lost = error(x, once)
    again = once
    for _ in range(3):
        result = code(again, cosines(shape, psnr=target), first.decoder)
        again = decoded(result, x)
    assert error(once, again) < min(0.05 * lost, 1e-4)
    assert error(x, again) < 1.05 * lost


def test_the_step_is_kept_where_quality_is_asked_for():
    """Also on images of another kind, which would have had another step of their own."""
    shape = (3, 32, 32)
    settings = cosines(shape, psnr=30)
    first = code(smooth(24, shape), settings)
    noise = np.random.default_rng(0).integers(0, 256, (24, *shape), dtype=np.uint8)
    assert step_of(code(noise, settings)) != step_of(first)
    assert step_of(code(noise, settings, first.decoder)) == step_of(first)


def test_the_step_is_kept_only_while_it_comes_near_the_bytes_asked_for():
    shape = (3, 32, 32)
    settings = cosines(shape, bytes_per_sample=60)
    first = code(smooth(64, shape), settings)
    alike, noise = (
        smooth(64, shape, seed=1),
        np.random.default_rng(0).integers(0, 256, (64, *shape), np.uint8),
    )
    assert step_of(code(alike, settings, first.decoder)) == step_of(first)
    other = code(noise, settings, first.decoder)
    assert step_of(other) > 2 * step_of(first)
    assert bytes_a_sample(other, noise) == pytest.approx(60, rel=0.15)


@pytest.mark.parametrize("target", [{"psnr": 30}, {"psnr": 40}, {"bytes_per_sample": 2500}])
def test_bright_and_dark_images_stay_so_however_fine_the_steps(target):
    """The largest symbol times the step must reach an image all white: grain asks for fine steps."""
    rng = np.random.default_rng(0)
    shades = np.resize([0.0, 0.03, 0.5, 0.97, 1.0], (20, 1, 1, 1))
    x = np.rint(255 * np.clip(shades + rng.normal(0, 0.02, (20, 3, 32, 32)), 0, 1)).astype(np.uint8)
    result = code(x, cosines((3, 32, 32), **target))
    assert psnr(x, decoded(result, x)) > target.get("psnr", 40) - 0.7


def test_the_unit_survives_half_precision():
    """The file keeps it in half precision: what is replayed now must be what is replayed later."""
    result = code(smooth(8, (1, 8, 8)), cosines((1, 8, 8), psnr=33))
    unit = result.decoder.unit.detach()
    assert torch.equal(unit, unit.half().float())


@pytest.mark.parametrize("level", [0, 128, 255])
@pytest.mark.parametrize("target", [{"psnr": 35}, {"bytes_per_sample": 10}])
def test_images_of_one_shade_are_no_special_case(level, target):
    x = np.full((3, 1, 8, 8), level, np.uint8)
    assert psnr(x, decoded(code(x, cosines((1, 8, 8), **target)), x) + 1e-9) > 34


def test_near_nothing_rounds_to_nothing():
    exact = torch.tensor([0.59, 0.61, -0.59, -0.61, 1.59, -1.61, 0.0, 1e9])
    rounded = quantising._rounded(exact, 1.0)
    assert rounded.tolist() == [0, 1, 0, -1, 1, -2, 0, entropy.LARGEST]


# Trained codes, on digits.


def digit_settings(**target: float) -> Settings:
    changes = {f"generator.{name}": value for name, value in target.items()}
    few = {"generator.min_steps": 500, "generator.epochs": 1, "generator.patience": 0}
    return override(preset("fast", (1, 8, 8)), {**few, **changes})


@pytest.fixture(scope="module")
def by_bytes(digits) -> dict[float, Encoding]:
    x = digits[0][:512]
    return {target: code(x, digit_settings(bytes_per_sample=target)) for target in (3, 8)}


def test_learned_codes_cost_about_what_was_asked_for(digits, by_bytes):
    for target, result in by_bytes.items():
        assert bytes_a_sample(result, digits[0][:512]) == pytest.approx(target, rel=0.25)


def test_learned_codes_of_more_bytes_have_less_error(digits, by_bytes):
    x = digits[0][:512]
    errors = [error(x, decoded(result, x)) for result in by_bytes.values()]
    assert errors[0] > 1.5 * errors[1]
    assert errors[0] < error(x, np.broadcast_to(x.mean(axis=0), x.shape)) / 2


def test_few_bytes_have_few_symbols():
    """Many symbols of less than a bit each would all be rounded to zero, and every image be the same."""
    lengths = [decoder_spec(digit_settings(bytes_per_sample=b)).length for b in (0.1, 2, 8, 1000)]
    assert lengths == [1, 6, 24, 32]
    assert decoder_spec(digit_settings(psnr=17)).length == 32


def test_learned_codes_of_a_given_quality(digits):
    x = digits[0][:512]
    assert psnr(x, decoded(code(x, digit_settings(psnr=17)), x)) == pytest.approx(17, abs=1)


@pytest.mark.parametrize("old", [384, 448])
def test_quality_is_judged_by_samples_that_are_raw(digits, by_bytes, old):
    """What was decoded before is easy to decode again. Its quality must not pay for that of new samples."""
    x = digits[0][:512].copy()
    x[:old] = decoded(by_bytes[3], x)[:old]

    def quality_of_new(first: Run) -> float:
        together = Samples(x, digits[1][:512], (first, Run(512 - old)))
        model, _ = LocalModel.fit(Slot(2, 1, 512), together, digit_settings(psnr=17), 2)
        return psnr(x[old:], model.replay()[0].numpy()[old:])

    beside_old = quality_of_new(Run(old, (0.03,)))
    assert beside_old == pytest.approx(17, abs=1)
    assert beside_old > quality_of_new(Run(old)) + 0.5


def test_a_decoder_to_begin_with_is_used_and_left_alone(digits, by_bytes):
    x = digits[0][:512]
    start = by_bytes[8].decoder
    before = {name: value.clone() for name, value in start.state_dict().items()}
    start.requires_grad_(False)  # as it comes out of a file
    settings = override(digit_settings(bytes_per_sample=8), {"generator.min_steps": 60})
    cold, warm = (
        error(x, decoded(result, x))
        for result in (code(x, settings), code(x, settings, quantising.Start(start)))
    )
    assert warm < 0.9 * cold
    assert all(torch.equal(before[name], value) for name, value in start.state_dict().items())


def test_an_encoder_to_begin_with_makes_a_fit_short(digits, by_bytes):
    """With both halves of a codec that knows such images, a third of the steps does as well as all."""
    x = digits[0][512:1024]  # images that the codec has not seen
    known = by_bytes[8]
    settings = override(digit_settings(bytes_per_sample=8), {"generator.warm_share": 0.3})
    taken = []

    class Counting(Silent):
        @contextmanager
        def track(self, description, total):
            taken.append(total)
            yield lambda steps=1, note="": None

    work = Work(torch.Generator().manual_seed(0), Counting())
    spec = decoder_spec(settings)
    cold = quantising.trained(x, spec, settings.generator, work, None)
    start = quantising.Start(known.decoder, known.analysis)
    warm = quantising.trained(x, spec, settings.generator, work, start)
    assert taken[1] == pytest.approx(0.3 * taken[0], rel=0.05)
    assert error(x, decoded(warm, x)) < 1.1 * error(x, decoded(cold, x))
    assert float(warm.analysis.exchange) != pytest.approx(0.016 / 64)  # what it arrived at, not the usual


def test_the_bits_of_the_prior_are_those_of_a_probability():
    """Over all integers, 2^-bits adds up to one."""
    prior = quantising._Logistic(1)
    for place, log_width in ((0.0, 0.0), (4.3, 1.0), (-9.0, -1.0)):
        with torch.no_grad():
            prior.place.fill_(place)
            prior.log_width.fill_(log_width)
            mass = sum(2 ** -float(prior.bits(torch.tensor([[float(symbol)]]))) for symbol in range(-60, 61))
        assert mass == pytest.approx(1, abs=1e-3)
