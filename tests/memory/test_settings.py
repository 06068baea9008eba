"""Settings: of two ways to set a rate, the given one wins; contradictions are refused in one sentence."""

import pytest

from logcl.codecs.base import CodecSettings
from logcl.core.errors import BadSettings
from logcl.core.settings import described
from logcl.memory.presets import preset
from logcl.memory.settings import override, parse

GREY, COLOUR = (1, 8, 8), (3, 32, 32)


def targets(codec: CodecSettings) -> tuple[float | None, float | None]:
    return getattr(codec, "bytes_per_sample", None), getattr(codec, "psnr", None)


def test_presets_have_one_target_where_the_rate_can_be_chosen_and_none_elsewhere():
    assert targets(preset("fast", GREY).codec) == (None, 26.5)
    assert targets(preset("fast", COLOUR).codec) == (None, 30)
    for name in ("paper-cpu", "paper"):
        assert targets(preset(name, COLOUR).codec) == (None, None)


@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_the_target_that_is_given_replaces_the_other(shape):
    settings = preset("fast", shape)
    by_quality = override(settings, {"codec.psnr": 33})
    assert targets(by_quality.codec) == (None, 33)
    by_bytes = override(by_quality, {"codec.bytes_per_sample": "12.5"})
    assert targets(by_bytes.codec) == (12.5, None)
    assert override(by_bytes, {"codec.psnr": 33}) == by_quality


def test_another_codec_starts_from_its_own_settings():
    settings = override(preset("fast", GREY), {"codec.name": "cosine"})
    assert targets(settings.codec) == (None, 30)
    assert set(settings.codec.model_dump()) == {"name", "bytes_per_sample", "psnr"}
    back = override(settings, {"codec.name": "autoencoder", "codec.psnr": 20})
    assert targets(back.codec) == (None, 20)
    assert targets(override(back, {"codec.bytes_per_sample": 8}).codec) == (8, None)
    assert override(back, {"codec.name": "auto", "codec.psnr": 26.5}) == preset("fast", GREY)
    assert override(settings, {"codec.name": "cosine"}) == settings


CONTRADICTIONS = {
    "two targets": ({"codec.psnr": 30, "codec.bytes_per_sample": 9}, "needs either bytes_per_sample or psnr"),
    "bytes of an index": ({"codec.name": "index", "codec.bytes_per_sample": 9}, "no setting 'codec.bytes"),
    "bits of an autoencoder": ({"codec.name": "autoencoder", "codec.bits": 9}, "no setting 'codec.bits'"),
    "epochs of cosines": ({"codec.name": "cosine", "codec.epochs": 9}, "no setting 'codec.epochs'"),
    "an index for planes": ({"codec.name": "index", "codec.network": "conv"}, "codec.network"),
    "no bytes": ({"codec.bytes_per_sample": 0}, "greater than 0"),
    "bytes that are no number": ({"codec.bytes_per_sample": "nan"}, "finite number"),
    "too good": ({"codec.psnr": 60}, "less than or equal to 40"),
    "neither": ({"codec.psnr": None}, "needs either bytes_per_sample or psnr"),
    "an unknown codec": ({"codec.name": "morse"}, "choose one of: autoencoder, cosine, features"),
    "a codec without a name": ({"codec.name": None}, "no codec 'None'"),
    "labels of an unknown kind": ({"labels.kind": "guessed"}, "'stored' or 'labeller'"),
    "a misspelt name": ({"codec.bytes": 9}, "there is no setting 'codec.bytes'"),
    "the name of old": ({"generator.epochs": 9}, "there is no setting 'generator.epochs'"),
    "bits of old": ({"bits": 80}, "there is no setting 'bits'"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "problem"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_contradictions_are_one_sentence(changes, problem):
    with pytest.raises(BadSettings) as refused:
        override(preset("fast", GREY), changes)
    message = str(refused.value)
    assert problem in message
    assert "\n" not in message
    assert "Value error" not in message


@pytest.mark.parametrize(
    "codec", [None, 7, {}, {"name": 3}, {"name": "cosine"}, {"name": "morse"}, {"psnr": 30}]
)
def test_settings_without_a_codec_are_refused(codec):
    data = {**preset("fast", GREY).model_dump(), "codec": codec}
    with pytest.raises(BadSettings, match="codec"):
        parse(data)


@pytest.mark.parametrize("shape", [(3, 65, 65), (1, 105, 105), (3, 224, 224), (3, 80, 3000), (3, 4096, 4096)])
def test_photographs_are_trained_for_some_hundred_steps_and_shifted_in_proportion(shape):
    large, small = preset("fast", shape).classifier, preset("fast", (shape[0], 64, 64)).classifier
    assert large.min_steps >= 500
    assert large.shift == min(max(shape) // 16, 64) > small.shift
    assert preset("offline", shape).classifier == preset("offline", (shape[0], 64, 64)).classifier


@pytest.mark.parametrize("name", ["fast", "paper-cpu", "paper"])
@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_settings_are_not_changed_by_what_they_already_are(name, shape):
    settings = preset(name, shape)
    fixed = ("preset", "image_shape", "backbone", "thumbnails")
    own = {name: value for name, value, _ in described(settings) if name not in fixed}
    assert override(settings, own) == settings
    assert override(settings, {}) == settings


@pytest.mark.parametrize(("shape", "hidden"), [((1, 28, 28), 0.3), ((1, 8, 8), 0.15), ((3, 32, 32), 0.0)])
def test_noise_hides_levels_only_where_they_have_decoders_of_their_own(shape, hidden):
    usual = preset("fast", shape)
    assert usual.classifier.noise == 0
    for codec, noise in (("cosine", 0), ("index", hidden), ("autoencoder", hidden)):
        assert override(usual, {"codec.name": codec}).classifier.noise == noise
    published = preset("paper-cpu", shape)
    assert published.classifier.noise == hidden
    assert override(published, {"codec.name": "cosine"}).classifier.noise == 0
    given = override(usual, {"codec.name": "index", "classifier.noise": 0.05})
    assert given.classifier.noise == 0.05
