"""The autoencoder: rate and quality are what was asked for, and a fit can start from another level's."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from logcl.codecs.autoencoder import AutoencoderSettings, Logistic
from logcl.codecs.base import Encoded, FitInput, Fitted
from logcl.codecs.cosine import Cosine
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, override
from tests.helpers import CountingProgress, decoded, error, fit_codec, fit_input, merge_input, psnr

SHAPE = (1, 8, 8)


def digit_settings(**target: float) -> Settings:
    changes = {f"codec.{name}": value for name, value in target.items()}
    few = {"codec.name": "autoencoder", "codec.min_steps": 500, "codec.epochs": 1, "codec.patience": 0}
    return override(preset("fast", SHAPE), {**few, **changes})


@pytest.fixture(scope="module")
def by_bytes(digits) -> dict[float, Fitted]:
    x = digits[0][:512]
    return {target: fit_codec(x, digit_settings(bytes_per_sample=target).codec) for target in (3, 8)}


def test_learned_codes_cost_about_what_was_asked_for(digits, by_bytes):
    for target, result in by_bytes.items():
        assert len(result.codes.coded.data) / 512 == pytest.approx(target, rel=0.25)


def test_learned_codes_of_more_bytes_have_less_error(digits, by_bytes):
    x = digits[0][:512]
    errors = [error(x, decoded(result)) for result in by_bytes.values()]
    assert errors[0] > 1.5 * errors[1]
    assert errors[0] < error(x, np.broadcast_to(x.mean(axis=0), x.shape)) / 2


def test_few_bytes_have_few_symbols():
    """Many symbols of less than a bit each would all be rounded to zero, and every image be the same."""
    lengths = [digit_settings(bytes_per_sample=b).codec.decoder(SHAPE).length for b in (0.1, 2, 8, 1000)]
    assert lengths == [1, 6, 24, 32]
    assert digit_settings(psnr=17).codec.decoder(SHAPE).length == 32


def test_learned_codes_of_a_given_quality(digits):
    x = digits[0][:512]
    assert psnr(x, decoded(fit_codec(x, digit_settings(psnr=17).codec))) == pytest.approx(17, abs=1)


@pytest.mark.parametrize("old", [384, 448])
def test_quality_is_judged_by_samples_that_are_raw(digits, by_bytes, old):
    """What was decoded before is easy to decode again. Its quality must not pay for that of new samples."""
    x = digits[0][:512]
    codes = Encoded(by_bytes[3].codec, by_bytes[3].codes.select(np.arange(old)))
    settings = digit_settings(psnr=17).codec

    def quality_of_new(samples: FitInput) -> float:
        return psnr(x[old:], decoded(fit_codec(replace(samples, level=2, top_level=2), settings))[old:])

    merged = FitInput(x[old:], np.arange(1, 513), [old, 512 - old], 2, 2, [codes])
    beside_old = quality_of_new(merged)
    assert beside_old == pytest.approx(17, abs=1)
    assert beside_old > quality_of_new(fit_input(merged.x)) + 0.5


def test_a_decoder_to_start_from_is_used_and_left_alone(digits, by_bytes):
    x = digits[0][:512]
    start = by_bytes[8].codec
    assert not start.can_encode
    before = {name: value.clone() for name, value in start.decoder.state_dict().items()}
    start.decoder.requires_grad_(False)  # as it comes out of a file
    settings = override(digit_settings(bytes_per_sample=8), {"codec.min_steps": 60}).codec
    cold, warm = (
        error(x, decoded(result)) for result in (fit_codec(x, settings), fit_codec(x, settings, [start]))
    )
    assert warm < 0.9 * cold
    assert all(torch.equal(before[name], value) for name, value in start.decoder.state_dict().items())


def test_an_encoder_to_start_from_makes_a_fit_short(digits):
    """With both halves of a codec that knows such images, a third of the steps does as well as all."""
    x = np.ascontiguousarray(digits[0][512:1024, :, :, ::-1])  # mirrored: strokes that the codec has not seen
    kept = {"codec.warm_share": 0.3, "codec.keep_encoder": True}
    settings = override(digit_settings(bytes_per_sample=8), kept).codec
    known = fit_codec(digits[0][:512], settings)
    progress = CountingProgress()
    cold = fit_codec(x, settings, progress=progress)
    warm = fit_codec(x, settings, [known.codec], progress=progress)
    assert progress.totals[1] == pytest.approx(0.3 * progress.totals[0], rel=0.05)
    assert error(x, decoded(warm)) < 1.1 * error(x, decoded(cold))
    assert float(warm.codec.analysis.exchange) != pytest.approx(
        0.016 / 64
    )  # what it arrived at, not the usual


def test_a_start_with_an_encoder_is_preferred(digits):
    """Even where another codec comes from a more similar level; codecs of another size are no use."""
    x = 255 - digits[0][:128]
    few = override(digit_settings(bytes_per_sample=8), {"codec.min_steps": 20})
    kept = override(few, {"codec.keep_encoder": True, "codec.warm_share": 0.5})
    plain, whole = fit_codec(x, few.codec).codec, fit_codec(digits[0][:128], kept.codec, seed=1).codec
    small = fit_codec(x, override(few, {"codec.width": 8}).codec).codec
    expected = decoded(fit_codec(x, kept.codec, [whole]))
    assert np.array_equal(decoded(fit_codec(x, kept.codec, [small, plain, whole])), expected)
    alone = decoded(fit_codec(x, kept.codec))
    assert np.array_equal(decoded(fit_codec(x, kept.codec, [small])), alone)
    never = override(kept, {"codec.warm_start": False}).codec
    assert np.array_equal(decoded(fit_codec(x, never, [whole])), alone)


@pytest.fixture(scope="module")
def known(digits) -> Fitted:
    """Of a level that keeps its encoder."""
    settings = override(digit_settings(psnr=17), {"codec.keep_encoder": True}).codec
    return fit_codec(digits[0][:512], settings)


@pytest.fixture(scope="module")
def similar(digits) -> np.ndarray:
    """Images like those that `known` was trained on, a little noisier."""
    noise = np.random.default_rng(0).integers(-2, 3, (256, *SHAPE))
    return (digits[0][:256].astype(int) + noise).clip(0, 255).astype(np.uint8)


def test_similar_images_share_weights_without_training(similar, known):
    x = similar
    settings = override(digit_settings(psnr=17), {"codec.keep_encoder": True}).codec
    fitted = fit_codec(x, settings, [known.codec])
    assert fitted.codec.to_bytes() == known.codec.to_bytes()
    assert psnr(x, decoded(fitted)) > 17 - 0.3


def test_merged_levels_with_shared_weights_keep_their_codes(similar, known):
    x = similar
    settings = override(digit_settings(psnr=17), {"codec.keep_encoder": True}).codec
    other = fit_codec(x, settings, [known.codec])
    merged = fit_codec(merge_input(known, other, new=x), settings, [known.codec])
    assert merged.kept
    assert np.array_equal(decoded(merged), np.concatenate([decoded(known), decoded(other), decoded(other)]))


def test_other_images_adapt_the_weights(digits, known):
    x = 255 - digits[0][512:768]
    settings = override(digit_settings(psnr=17), {"codec.keep_encoder": True}).codec
    fitted = fit_codec(x, settings, [known.codec])
    assert fitted.codec.to_bytes() != known.codec.to_bytes()


def test_a_quality_out_of_reach_is_left_to_the_cosine_transform(digits):
    """Later levels do not train in vain."""
    x, progress = digits[0][:512], CountingProgress()
    settings = override(digit_settings(psnr=32), {"codec.min_steps": 50}).codec
    first = fit_codec(x[:256], settings)
    assert isinstance(first.codec, Cosine)
    assert settings.describes(first.codec.spec)
    later = fit_codec(x[256:], settings, [first.codec], progress=progress)
    assert isinstance(later.codec, Cosine)
    assert len(progress.totals) == 1  # no training
    for images, fitted in ((x[:256], first), (x[256:], later)):
        assert psnr(images, decoded(fitted)) == pytest.approx(32, abs=0.3)


def test_other_images_are_encoded_at_the_rate_it_was_trained_for(digits):
    settings = override(digit_settings(bytes_per_sample=8), {"codec.keep_encoder": True}).codec
    codec = fit_codec(digits[0][:512], settings).codec
    x = digits[0][512:1024]
    codes = codec.encode(x)
    z = codec.decode(codes, np.arange(512)).numpy()
    assert len(codes.coded.data) / 512 == pytest.approx(8, rel=0.35)
    assert error(x, z) < error(x, np.broadcast_to(x.mean(axis=0), x.shape)) / 2


def test_the_bits_of_the_prior_are_those_of_a_probability():
    """Over all integers, 2^-bits adds up to one."""
    prior = Logistic(1)
    for place, log_width in ((0.0, 0.0), (4.3, 1.0), (-9.0, -1.0)):
        with torch.no_grad():
            prior.place.fill_(place)
            prior.log_width.fill_(log_width)
            mass = sum(2 ** -float(prior.bits(torch.tensor([[float(symbol)]]))) for symbol in range(-60, 61))
        assert mass == pytest.approx(1, abs=1e-3)


def test_settings_follow_the_image():
    assert AutoencoderSettings.for_images(SHAPE).network == "mlp"
    assert AutoencoderSettings.for_images((1, 28, 28)).network == "conv"
