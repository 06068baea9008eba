"""Rounded features: rates are met, merged levels keep their symbols, and zeros stand for what they were."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl.codecs import registry
from logcl.codecs.features.codec import Features, FeaturesSettings
from logcl.codecs.features.probe import choose_step
from logcl.codecs.features.rounding import rounded
from logcl.core.errors import Damaged
from logcl.core.features import ZERO, from_bytes, to_bytes
from logcl.core.progress import Silent
from tests.helpers import CountingProgress, code_bytes, decoded, feature_bytes, fit_codec, merge_input, psnr


def code(x, start=None, **settings):
    return fit_codec(x, FeaturesSettings(**settings), () if start is None else (start,))


def spent(fitted) -> float:
    """Bytes per sample of the codes."""
    return code_bytes(fitted.codes) / len(fitted.codes)


# --- features as bytes ------------------------------------------------------------------------------------


@given(
    value=st.floats(-32, 32, width=32),
    scale=st.integers(-12, 12).map(lambda power: 2.0**power),
)
@hypothesis_settings(max_examples=300)
def test_the_error_of_bytes_is_bounded(value, scale):
    """Half a step: about a sixtieth of the scale near zero, and 2 % of the feature where it is large."""
    features = np.array([value * scale], np.float32)
    again = from_bytes(to_bytes(features, scale), scale)
    step = np.arcsinh(32) / 127
    assert abs(again - features)[0] <= 0.51 * step * np.hypot(scale, abs(features[0]) + 0.1 * scale)


def test_bytes_are_monotonic_symmetric_and_stable():
    every = np.arange(1, 256, dtype=np.uint8)
    features = from_bytes(every, 4.0)
    assert (np.diff(features) > 0).all()
    assert np.allclose(features, -features[::-1])
    assert from_bytes(np.array([ZERO], np.uint8), 4.0) == 0
    assert (to_bytes(features, 4.0) == every).all()
    assert to_bytes(np.array([1e30, -1e30]), 4.0).tolist() == [255, 1]


# --- rates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [12, 25, 60])
def test_bytes_are_what_was_asked_for(target):
    x, _ = feature_bytes(1200)  # tables are a part of what is counted
    assert spent(code(x, bytes_per_sample=target)) == pytest.approx(target, rel=0.1)


@pytest.mark.parametrize("target", [30, 36, 40])
def test_quality_is_what_was_asked_for(target):
    x, _ = feature_bytes(300)
    assert target - 0.1 < psnr(x, decoded(code(x, psnr=target))) < target + 1.5


def test_coarser_steps_cost_fewer_bytes():
    x, _ = feature_bytes(200)
    bytes_, qualities = zip(
        *[(spent(found), psnr(x, decoded(found))) for found in (code(x, step=s) for s in (4, 8, 16, 32))],
        strict=True,
    )
    assert list(bytes_) == sorted(bytes_, reverse=True)
    assert list(qualities) == sorted(qualities, reverse=True)
    assert bytes_[0] > 2 * bytes_[3]


def test_what_is_decoded_is_rounded_to_itself():
    x, _ = feature_bytes(200)
    first = code(x, step=12)
    once = decoded(first)
    wrong = decoded(code(once, first.codec, step=12)) != once
    assert wrong.mean() < 0.01


def test_zeros_stand_for_the_mean_of_what_they_were():
    x, _ = feature_bytes(400)
    found = code(x, step=20)
    gone = rounded(x, 20).reshape(x.shape) == 0
    assert gone.mean() > 0.3
    assert abs(decoded(found)[gone].mean() - x[gone].mean()) < 0.1
    assert found.codec.zeros.max() > 1  # a little more than nothing


def test_bytes_are_those_of_the_documented_format():
    """docs/memory-file.md: 128 + round(k · step), or 128 + zeros if k is 0, from 0 to 255."""
    x, _ = feature_bytes(60)
    found = code(x, step=9.5)
    k = found.codes.symbols(np.arange(60)).astype(int)
    zeros = found.codec.weights()["zeros"].numpy().astype(int)
    expected = np.where(k == 0, 128 + zeros, 128 + np.rint(k * 9.5)).clip(0, 255)
    assert (decoded(found).reshape(60, -1) == expected).all()
    assert np.allclose(
        from_bytes(np.arange(256, dtype=np.uint8), 2.0),
        2 * np.sinh((np.arange(256) - 128) * np.arcsinh(32) / 127),
    )


# --- levels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"step": 14.0}, {"bytes_per_sample": 60}, {"psnr": 30}, {}])
def test_merged_levels_keep_their_symbols(settings):
    first = code(feature_bytes(96)[0], **settings)
    second = code(feature_bytes(96, seed=1)[0], first.codec, **settings)
    assert second.codec.spec == first.codec.spec
    new, _ = feature_bytes(64, seed=2)
    merged = fit_codec(merge_input(first, second, new=new), FeaturesSettings(**settings), (first.codec,))
    assert merged.kept
    assert (decoded(merged)[:96] == decoded(first)).all()
    assert (decoded(merged)[96:192] == decoded(second)).all()
    assert (merged.order == np.arange(256)).all()


def test_other_features_get_another_step_where_bytes_are_asked_for():
    first = code(feature_bytes(128)[0], bytes_per_sample=50)
    noise = np.random.default_rng(0).integers(1, 256, (128, 1, 1, 256), np.uint8)
    other = code(noise, first.codec, bytes_per_sample=50)
    assert other.codec.spec.step > 1.5 * first.codec.spec.step
    assert spent(other) == pytest.approx(50, rel=0.15)
    merged = fit_codec(merge_input(first, new=noise), FeaturesSettings(bytes_per_sample=50), (first.codec,))
    assert not merged.kept
    assert len(merged.codes) == 256


def test_fits_take_the_steps_they_announce():
    for settings in ({"step": 9.0}, {"bytes_per_sample": 40}, {"psnr": 30}):
        progress = CountingProgress()
        fit_codec(feature_bytes(64)[0], FeaturesSettings(**settings), progress=progress)
        assert progress.steps == Features.steps(FeaturesSettings(**settings), 64, warm=False)


# --- the step that a probe chooses ------------------------------------------------------------------------


def test_the_probe_is_reproducible():
    x, y = feature_bytes(150)
    step, trials = choose_step(x, y, Silent())
    assert choose_step(x, y, Silent()) == (step, trials)
    assert trials[0].codec == f"features in steps of {step:g}"
    assert len(trials) == 4
    by_step = sorted(trials, key=lambda trial: float(trial.codec.rpartition(" ")[2]))
    sizes = [trial.bytes_per_sample for trial in by_step]
    assert sizes == sorted(sizes, reverse=True)
    assert [trial.psnr for trial in by_step] == sorted((trial.psnr for trial in by_step), reverse=True)
    chosen = trials[0]
    assert chosen.loss <= 0.01 or chosen == by_step[0]  # the finest where none is good enough
    assert all(trial.loss > 0.01 for trial in by_step[by_step.index(chosen) + 1 :])


def test_the_probe_chooses_finer_steps_where_these_matter():
    """Classes that differ by less than a coarse step."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    x = (ZERO + rng.integers(0, 3, (240, 1, 1, 64)) + 9 * y[:, None, None, None]).astype(np.uint8)
    step, trials = choose_step(x, y, Silent())
    easy, _ = choose_step(*feature_bytes(240, classes=2), Silent())
    assert step <= easy
    assert max(trial.loss for trial in trials) > 0.01


def test_few_samples_are_not_probed():
    x, y = feature_bytes(20)
    step, trials = choose_step(x, y, Silent())
    assert step == 20
    assert all(trial.loss == 0 for trial in trials)


def test_only_an_open_rate_is_measured():
    x, y = feature_bytes(80)
    chosen, trials = FeaturesSettings().measured(x, y, Silent())
    assert chosen.step in (14, 17, 20, 24)
    assert len(trials) == 4
    for settings in ({"step": 5.0}, {"psnr": 30}, {"bytes_per_sample": 50}):
        assert FeaturesSettings(**settings).measured(x, y, Silent()) is None
    with pytest.raises(ValueError, match="takes one of step, bytes_per_sample and psnr"):
        FeaturesSettings(step=5.0, psnr=30)


# --- forged files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "zeros",
    [
        {},
        {"zeros": torch.zeros(255, dtype=torch.int8)},
        {"zeros": torch.zeros(256)},
        {"zeros": torch.zeros((1, 256), dtype=torch.int8)},
        {"other": torch.zeros(256, dtype=torch.int8)},
        {"zeros": torch.zeros(256, dtype=torch.int8), "more": torch.zeros(1)},
    ],
)
def test_forged_zeros_are_refused(zeros):
    codec = code(feature_bytes(32)[0], step=9).codec
    with pytest.raises(Damaged, match="level-0 does not say what zeros stand for"):
        Features.restore(codec.spec, zeros, "level-0")


@pytest.mark.parametrize(
    "changes",
    [
        {"step": 0.0}, {"step": -3}, {"step": float("nan")}, {"step": 1e9}, {"step": "x"},
        {"image_shape": [1, 1, 0]}, {"image_shape": [1, 1]}, {"image_shape": [1, 1, 257]}, {"more": 1},
    ],
)  # fmt: skip
def test_forged_specs_are_refused(changes):
    codec = code(feature_bytes(32)[0], step=9).codec
    about, tensors = registry.from_bytes(codec.to_bytes(), "level-0").spec, codec.weights()
    text = json.dumps({**about.model_dump(mode="json"), **changes})
    with pytest.raises(Damaged, match="level-0"):
        registry.from_bytes(safetensors.torch.save(tensors, {"logcl": text}), "level-0")


def test_extreme_zeros_stay_bytes():
    codec = code(feature_bytes(32)[0], step=9).codec
    for extreme in (-128, 127):
        forged = Features(codec.spec, np.full(256, extreme, np.int8))
        symbols = torch.zeros((2, 256))
        assert 0 <= float(forged.images(symbols).min()) <= float(forged.images(symbols).max()) <= 1
