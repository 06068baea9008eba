"""Settings: of two that say the same thing the one given holds, and contradictions are one sentence."""

import pytest

from logcl.cli.console import parse_changes
from logcl.codecs import registry
from logcl.codecs.base import RateSettings
from logcl.core.errors import BadSettings
from logcl.core.settings import described
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, override

GREY, COLOUR = (1, 8, 8), (3, 32, 32)


def targets(settings: Settings) -> tuple[float | None, float | None]:
    assert isinstance(settings.codec, RateSettings)
    return settings.codec.bytes_per_sample, settings.codec.psnr


def test_presets_have_one_target_where_the_rate_can_be_chosen():
    assert targets(preset("fast", GREY)) == (8, None)
    assert targets(preset("fast", COLOUR)) == (None, 30)
    for name in ("paper-cpu", "paper"):
        assert not isinstance(preset(name, COLOUR).codec, RateSettings)


@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_the_target_that_is_given_replaces_the_other(shape):
    settings = preset("fast", shape)
    by_quality = override(settings, {"codec.psnr": 33})
    assert targets(by_quality) == (None, 33)
    by_bytes = override(by_quality, {"codec.bytes_per_sample": "12.5"})
    assert targets(by_bytes) == (12.5, None)
    assert override(by_bytes, {"codec.psnr": 33}) == by_quality


@pytest.mark.parametrize("name", registry.names())
@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_choosing_a_codec_takes_its_own_settings(name, shape):
    settings = preset("fast", shape)
    chosen = override(settings, {"codec.name": name})
    kind = registry.find(name)
    expected = settings.codec if name == settings.codec.name else kind.Settings.for_images(shape)
    assert isinstance(chosen.codec, kind.Settings)
    assert chosen.codec == expected
    assert chosen.model_copy(update={"codec": settings.codec}) == settings
    back = override(chosen, {"codec.name": settings.codec.name})
    assert back == settings


def test_a_codec_and_its_rate_are_chosen_at_once():
    assert targets(override(preset("fast", GREY), {"codec.name": "cosine", "codec.psnr": 20})) == (None, 20)
    by_bytes = override(preset("fast", GREY), {"codec.name": "cosine", "codec.bytes_per_sample": 9})
    assert targets(by_bytes) == (9, None)


CONTRADICTIONS = {
    "two targets": ({"codec.psnr": 30, "codec.bytes_per_sample": 9}, "needs either"),
    "bytes of an index": ({"codec.name": "index", "codec.bytes_per_sample": 9}, "there is no setting"),
    "an index for planes": ({"codec.name": "index", "codec.network": "conv"}, "'superposed'"),
    "steps of cosines": ({"codec.name": "cosine", "codec.epochs": 9}, "there is no setting 'codec.epochs'"),
    "no bytes": ({"codec.bytes_per_sample": 0}, "greater than 0"),
    "bytes that are no number": ({"codec.bytes_per_sample": "nan"}, "finite number"),
    "too good": ({"codec.psnr": 60}, "less than or equal to 40"),
    "no target": ({"codec.bytes_per_sample": None}, "needs either bytes_per_sample or psnr"),
    "an unknown codec": ({"codec.name": "morse"}, "there is no codec 'morse'"),
    "an old name": ({"generator.epochs": 9}, "there is no setting 'generator.epochs'"),
    "a misspelt name": ({"codec.bytes": 9}, "there is no setting 'codec.bytes'"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "problem"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_contradictions_are_one_sentence(changes, problem):
    with pytest.raises(BadSettings) as refused:
        override(preset("fast", GREY), changes)
    message = str(refused.value)
    assert problem in message
    assert "\n" not in message
    assert "Value error" not in message


@pytest.mark.parametrize("name", ["fast", "paper-cpu", "paper"])
@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_settings_are_not_changed_by_what_they_already_are(name, shape):
    settings = preset(name, shape)
    own = {name: value for name, value, _ in described(settings) if name not in ("preset", "image_shape")}
    assert override(settings, own) == settings
    assert override(settings, {}) == settings


def test_the_command_line_takes_bytes_or_quality():
    assert parse_changes(None) == {}
    assert parse_changes(["unit = 7"]) == {"unit": "7"}
    assert parse_changes([], bytes_per_sample=2.5) == {"codec.bytes_per_sample": 2.5}
    assert parse_changes([], psnr=30) == {"codec.psnr": 30}
    with pytest.raises(BadSettings, match="exclude each other; give only one"):
        parse_changes(None, bytes_per_sample=1, psnr=3)
