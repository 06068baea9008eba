"""What every codec promises, run over all of them."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl.codecs import registry
from logcl.codecs.base import Codec, Codes, Fitted
from logcl.core.errors import Damaged
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.nn import blobs
from tests.helpers import (
    CountingProgress,
    code_bytes,
    decoded,
    error,
    fit_codec,
    fit_input,
    merge_input,
    smooth,
)

COUNT, SHAPE, FIRST = 96, (1, 8, 8), 33
GROUPS = [40, 1, 55]
TRAINED = {"epochs": 2, "min_steps": 60, "width": 32, "learning_rate": 1e-2}
SMALL = {
    "autoencoder": [
        {**TRAINED, "network": "mlp", "bytes_per_sample": 8.0, "symbols": 24},
        {**TRAINED, "network": "conv", "psnr": 14.0, "symbols": 12, "min_steps": 150, "keep_encoder": True},
    ],
    "cosine": [{"psnr": 25.0}, {"bytes_per_sample": 12.0}],
    "features": [{"step": 9.0}, {"bytes_per_sample": 40.0}, {"psnr": 30.0}],
    "illustrated": [{"side": 4, "step": 9.0, "thumbnail_psnr": 25.0}, {"side": 4, "bytes_per_sample": 40.0}],
    "image_file": [{"psnr": 25.0}, {"bytes_per_sample": 40.0}, {"psnr": 25.0, "format": "webp"}],
    "index": [
        {**TRAINED, "network": "superposed", "assignment": "none", "bits": 5, "warm_up_epochs": 1},
        {**TRAINED, "network": "mlp", "bits": 32, "warm_up_epochs": 3},
    ],
    "pixels": [{"psnr": 25.0, "train_steps": 60}, {"bytes_per_sample": 12.0, "train_steps": 60}],
    "pyramid": [{"psnr": 25.0}, {"bytes_per_sample": 12.0}],
}
"""Settings of every codec that fit in a moment. A new codec needs a line here."""
CASES = [(name, number) for name, choices in SMALL.items() for number in range(len(choices))]


def test_no_codec_is_left_out():
    assert registry.names() == sorted(SMALL)


def settings_of(name: str, number: int):
    return registry.find(name).Settings.model_validate({"name": name, **SMALL[name][number]})


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request) -> tuple[str, int]:
    return request.param


@pytest.fixture(scope="module")
def settings(case):
    return settings_of(*case)


@pytest.fixture(scope="module")
def x(digits) -> np.ndarray:
    return digits[0][:COUNT]


@pytest.fixture(scope="module")
def given_samples(x):
    return fit_input(x, GROUPS, FIRST)


@pytest.fixture(scope="module")
def fit_of(given_samples):
    """A codec by its name and the number of its settings, fitted once."""
    return cache(lambda name, number: fit_codec(given_samples, settings_of(name, number)))


@pytest.fixture(scope="module")
def fitted(case, fit_of) -> Fitted:
    return fit_of(*case)


@pytest.fixture(scope="module")
def images(fitted) -> np.ndarray:
    return decoded(fitted)


@pytest.fixture(scope="module")
def codec(fitted) -> Codec:
    return fitted.codec


@pytest.fixture(scope="module")
def codes(fitted) -> Codes:
    return fitted.codes


def restored(codec: Codec, codes: Codes, indices: np.ndarray) -> tuple[Codec, Codes]:
    """Both after a trip through bytes."""
    blob = codec.to_bytes()
    again = registry.from_bytes(blob, "weights-0")
    tensors = safetensors.torch.load(safetensors.torch.save(codes.tensors()))
    return again, again.restore_codes(tensors, indices, 10**6, "level-0")


def test_fit_gives_every_sample_a_code_and_keeps_groups_together(fitted, settings):
    assert len(fitted.codes) == COUNT
    assert fitted.order.shape == (COUNT,)
    edges = np.cumsum([0, *GROUPS])
    for start, stop in pairwise(edges):
        assert sorted(fitted.order[start:stop].tolist()) == list(range(start, stop))
    assert fitted.codec.spec.name == settings.name
    assert fitted.codec.spec.shape == SHAPE


def test_what_is_decoded_resembles_what_was_given(fitted, images, x):
    before = x[fitted.order]
    assert error(before, images) < 0.8 * error(before, np.broadcast_to(x.mean(axis=0), x.shape))


@given(rows=st.lists(st.integers(0, COUNT - 1), max_size=8))
@hypothesis_settings(max_examples=15)
def test_any_rows_are_decoded(codec, codes, images, rows):
    """None, some, in any order, repeated; other batches may round a pixel the other way."""
    some = codec.decode(codes, np.array(rows, dtype=np.intp))
    assert some.dtype == torch.uint8
    assert some.device.type == "cpu"
    assert some.shape == (len(rows), *SHAPE)
    assert np.abs(some.numpy().astype(int) - images[rows]).max(initial=0) <= 1


def test_blocks_do_not_matter(codec, codes, images, monkeypatch):
    whole = images.astype(int)
    for at_once in (1, 7):
        monkeypatch.setattr("logcl.codecs.decoding.rows_at_once", lambda _, many=at_once: many)
        found = codec.decode(codes, np.arange(COUNT)).numpy()
        assert np.abs(found.astype(int) - whole).max() <= 1


def test_bytes_hold_the_same_codec_and_codes(codec, codes, images, given_samples):
    again, its_codes = restored(codec, codes, given_samples.indices)
    assert type(again) is type(codec)
    assert again.spec == codec.spec
    assert again.can_encode == codec.can_encode
    assert again.to_bytes() == codec.to_bytes()
    assert safetensors.torch.save(its_codes.tensors()) == safetensors.torch.save(codes.tensors())
    assert np.array_equal(again.decode(its_codes, np.arange(COUNT)).numpy(), images)


@given(rows=st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=20))
@hypothesis_settings(max_examples=10)
def test_selected_codes_decode_alike(codec, codes, given_samples, rows):
    rows = np.array(sorted(rows))
    chosen = codes.select(rows)
    assert len(chosen) == len(rows)
    wanted = codec.decode(codes, rows)
    assert torch.equal(codec.decode(chosen, np.arange(len(rows))), wanted)
    again, its_codes = restored(codec, chosen, given_samples.indices[rows])
    assert torch.equal(again.decode(its_codes, np.arange(len(rows))), wanted)


@pytest.mark.parametrize("factor", [1, 2, 5])
def test_coarser_codes_are_of_the_same_samples_in_no_more_bytes(codec, codes, given_samples, factor):
    coarse = codec.coarsen(codes, factor)
    assert len(coarse) == COUNT
    assert code_bytes(coarse) <= code_bytes(codes)
    again, its_codes = restored(codec, coarse, given_samples.indices)
    images = codec.decode(coarse, np.arange(COUNT))
    assert torch.equal(again.decode(its_codes, np.arange(COUNT)), images)
    fine = codec.decode(codes, np.arange(COUNT))
    assert factor > 1 or torch.equal(images, fine)
    assert error(images.numpy(), fine.numpy()) < 0.1


def test_the_same_seed_gives_the_same_bytes(settings, codec, codes, given_samples):
    again = fit_codec(given_samples, settings)
    assert again.codec.to_bytes() == codec.to_bytes()
    assert safetensors.torch.save(again.codes.tensors()) == safetensors.torch.save(codes.tensors())


def test_encoding_works_where_it_is_promised(codec, digits):
    others = digits[0][200:216]
    if not codec.can_encode:
        with pytest.raises(ValueError, match=r"."):
            codec.encode(others)
        return
    codes = codec.encode(others)
    assert len(codes) == 16
    images = codec.decode(codes, np.arange(16)).numpy()
    assert error(others, images) < error(others, np.broadcast_to(others.mean(axis=0), others.shape))
    again, its_codes = restored(codec, codes, np.arange(1, 17))
    assert np.array_equal(again.decode(its_codes, np.arange(16)).numpy(), images)


def test_the_steps_announced_are_the_steps_made(settings, given_samples, x):
    kind = registry.find(settings.name)
    for count in (1, 50, COUNT):
        progress = CountingProgress()
        samples = fit_input(x[:count])
        found = fit_codec(samples, settings, progress=progress)
        assert progress.steps == sum(progress.totals) == kind.steps(settings, count, warm=False)
    if kind.warm_starts:
        progress = CountingProgress()
        fit_codec(given_samples, settings, [found.codec], progress=progress)
        assert progress.steps == kind.steps(settings, COUNT, warm=True)


def test_codecs_of_other_kinds_are_no_start(settings, codec, given_samples, fit_of):
    """A fit is offered whatever other levels have."""
    others = [fit_of(name, 0).codec for name in SMALL if name != settings.name]
    strangers = [other for other in others if not settings.describes(other.spec)]
    assert fit_codec(given_samples, settings, strangers).codec.to_bytes() == codec.to_bytes()


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 14), (3, 40, 33)])
@pytest.mark.parametrize("name", SMALL)
def test_the_name_alone_gives_settings_that_work(name, shape):
    settings = override(preset("fast", shape), {"codec.name": name}).codec
    assert settings.name == name
    assert settings == registry.find(name).Settings.for_images(shape)
    assert override(preset("fast", shape), settings_as_changes(settings)).codec == settings


def settings_as_changes(settings) -> dict:
    data = settings.model_dump()
    return {f"codec.{key}": value for key, value in data.items() if value is not None}


@pytest.mark.parametrize("name", SMALL)
def test_images_of_any_shape_and_a_single_sample(name):
    channels = 1 if name == "pixels" else 3
    images = smooth(3, (channels, 9, 14))
    changes = {"network": "mlp"} if name == "autoencoder" else {}
    settings = registry.find(name).Settings.model_validate({"name": name, **SMALL[name][0], **changes})
    for count in (1, 3):
        fitted = fit_codec(images[:count], settings)
        assert decoded(fitted).shape == (count, channels, 9, 14)
        again, codes = restored(fitted.codec, fitted.codes, np.arange(1, count + 1))
        assert np.array_equal(again.decode(codes, np.arange(count)).numpy(), decoded(fitted))


def other_dtypes(value: torch.Tensor) -> list[torch.Tensor]:
    kinds = (torch.float64, torch.bfloat16, torch.int32, torch.bool, torch.complex64)
    return [value.to(kind) for kind in kinds if kind != value.dtype]


def other_shapes(value: torch.Tensor) -> list[torch.Tensor]:
    empty = torch.empty(0, dtype=value.dtype)
    if not value.dim():
        return [value.reshape(1, 1), value.repeat(2), empty]
    return [torch.cat([value, value]), value[:-1], value[None], empty]


def test_forged_codes_are_refused(codec, codes, given_samples):
    """Wrong types, shapes, lengths, or nothing at all: each tensor by itself."""
    genuine = codes.tensors()
    for key, value in genuine.items():
        lies = [*other_dtypes(value), *other_shapes(value)]
        for lie in lies:
            with pytest.raises(Damaged, match="level-0"):
                codec.restore_codes({**genuine, key: lie}, given_samples.indices, 10**6, "level-0")
    if len(genuine) > 1:  # index codes are what the indices say
        for key in genuine:
            less = {name: value for name, value in genuine.items() if name != key}
            with pytest.raises(Damaged, match="level-0"):
                codec.restore_codes(less, given_samples.indices, 10**6, "level-0")


def test_codes_of_another_number_of_samples_are_refused(codec, codes):
    for count in (1, 2 * COUNT, 10**5):
        if count == 10**5 or len(codes.tensors()) > 1:
            with pytest.raises(Damaged, match="level-0"):
                codec.restore_codes(codes.tensors(), np.arange(1, count + 1, dtype=np.int64), 1000, "level-0")


def test_forged_weights_are_refused(codec):
    genuine = codec.weights()
    for key, value in genuine.items():
        lies = [*(lie for lie in other_dtypes(value) if not allowed(value, lie)), *other_shapes(value)]
        forged = [{**genuine, key: lie} for lie in lies]
        if not key.endswith("num_batches_tracked"):  # torch counts from zero if there is none
            forged.append({name: tensor for name, tensor in genuine.items() if name != key})
        for tensors in forged:
            with pytest.raises(Damaged, match="weights-0"):
                registry.from_bytes(blobs.pack(codec.spec, tensors), "weights-0")


def allowed(value: torch.Tensor, lie: torch.Tensor) -> bool:
    """Weights may be stored in half or single precision."""
    return lie.dtype in (torch.float16, torch.float32) and value.is_floating_point()


def test_more_weights_than_there_are_are_refused(codec):
    more = {**codec.weights(), "decoder.more": torch.zeros(3)}
    with pytest.raises(Damaged, match="weights-0"):
        registry.from_bytes(blobs.pack(codec.spec, more), "weights-0")


def test_the_description_of_another_codec_is_refused(settings, codec, codes, given_samples, fit_of):
    """Weights and codes that are sound, under a spec that is sound, but do not belong together."""
    tensors, indices = codes.tensors(), given_samples.indices
    for name in SMALL:
        if name == settings.name:
            continue
        mixed = blobs.pack(fit_of(name, 0).codec.spec, codec.weights())
        with pytest.raises(Damaged):
            registry.from_bytes(mixed, "weights-0").restore_codes(tensors, indices, 10**6, "level-0")


def test_specs_that_are_nonsense_are_refused(codec):
    genuine = json.loads(codec.spec.model_dump_json())
    weights = codec.weights()
    for lie in (
        {"more": 1}, {"name": None}, {"name": ["cosine"]}, {"image_shape": [1, 8, 8, 8]}, {"decoder": 3},
        *({key: None} for key in genuine),
    ):  # fmt: skip
        blob = safetensors.torch.save(weights, {"logcl": json.dumps({**genuine, **lie})})
        with pytest.raises(Damaged, match="weights-0"):
            registry.from_bytes(blob, "weights-0")
    for missing in (key for key in genuine if type(codec.spec).model_fields[key].is_required()):
        data = {key: value for key, value in genuine.items() if key != missing}
        with pytest.raises(Damaged, match="weights-0"):
            registry.from_bytes(safetensors.torch.save(weights, {"logcl": json.dumps(data)}), "weights-0")


def test_levels_merge(settings, fitted, x):
    """With new samples and without; what is kept decodes as before."""
    other = fit_codec(x[:10], settings, [fitted.codec])
    for new in (None, x[10:20]):
        samples = merge_input(fitted, other, new=new)
        found = fit_codec(samples, settings, [fitted.codec])
        assert len(found.codes) == len(samples)
        if found.kept:
            before = np.concatenate([decoded(fitted), decoded(other)])
            assert np.array_equal(decoded(found)[: len(before)], before)
            assert np.array_equal(found.order, np.arange(len(samples)))
        restored(found.codec, found.codes, samples.indices)


def test_levels_of_another_codec_merge(settings, fit_of):
    name = next(name for name in SMALL if name != settings.name)
    found = fit_codec(merge_input(fit_of(name, 0)), settings)
    assert not found.kept
    assert len(found.codes) == COUNT
