"""Settings: of two that say the same thing the one given holds, and contradictions are one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl.cli.console import parse_changes
from logcl.codecs.settings import GeneratorSettings
from logcl.core.errors import BadSettings
from logcl.core.settings import described
from logcl.memory.presets import preset
from logcl.memory.settings import override

GREY, COLOUR = (1, 8, 8), (3, 32, 32)


def targets(generator: GeneratorSettings) -> tuple[float | None, float | None]:
    return generator.bytes_per_sample, generator.psnr


def test_presets_have_one_target_where_codes_are_quantised_and_none_elsewhere():
    assert targets(preset("fast", GREY).generator) == (8, None)
    assert targets(preset("fast", COLOUR).generator) == (None, 30)
    for name in ("paper-cpu", "paper"):
        assert targets(preset(name, COLOUR).generator) == (None, None)


@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_the_target_that_is_given_replaces_the_other(shape):
    settings = preset("fast", shape)
    by_quality = override(settings, {"generator.psnr": 33})
    assert targets(by_quality.generator) == (None, 33)
    by_bytes = override(by_quality, {"generator.bytes_per_sample": "12.5"})
    assert targets(by_bytes.generator) == (12.5, None)
    assert override(by_bytes, {"generator.psnr": 33}) == by_quality


@given(st.integers(1, 10_000))
def test_bits_are_the_size_of_a_code_of_any_kind(bits):
    assert targets(override(preset("fast", COLOUR), {"bits": bits}).generator) == (bits / 8, None)
    binary = override(preset("fast", GREY), {"generator.codes": "binary", "bits": str(bits)})
    assert binary.generator.bits == bits
    assert targets(binary.generator) == (None, None)
    index = override(preset("fast", GREY), {"generator.codes": "index", "bits": bits})
    assert index.generator.bits == bits


def test_codes_of_another_kind_have_no_target():
    settings = override(preset("fast", GREY), {"generator.codes": "index"})
    assert targets(settings.generator) == (None, None)
    back = override(settings, {"generator.codes": "quantised", "generator.psnr": 20})
    assert targets(back.generator) == (None, 20)


CONTRADICTIONS = {
    "two targets": ({"generator.psnr": 30, "generator.bytes_per_sample": 9}, "needs either"),
    "bits and quality": ({"bits": 80, "generator.psnr": 30}, "needs either"),
    "bits and bytes": ({"bits": 80, "generator.bytes_per_sample": 9}, "say the same thing"),
    "bits and bits": ({"bits": 80, "generator.codes": "binary", "generator.bits": 9}, "say the same thing"),
    "quality of bits": ({"generator.codes": "binary", "generator.psnr": 30}, "= binary have generator.bits"),
    "bytes of an index": ({"generator.codes": "index", "generator.bytes_per_sample": 9}, "= quantised"),
    "bits of cosines": ({"generator.network": "cosine", "generator.codes": "binary"}, "not cosine"),
    "an index for planes": ({"generator.network": "conv", "generator.codes": "index"}, "needs network = mlp"),
    "no bytes": ({"generator.bytes_per_sample": 0}, "greater than 0"),
    "bytes that are no number": ({"generator.bytes_per_sample": "nan"}, "finite number"),
    "too good": ({"generator.psnr": 60}, "less than or equal to 40"),
    "bits in words": ({"bits": "many"}, "bits is 'many'; give a number"),
    "bits of nothing": ({"bits": None}, "bits is None; give a number"),
    "no bits": ({"bits": 0}, "greater than 0"),
    "an unknown code": ({"generator.codes": "morse"}, "'quantised', 'binary' or 'index'"),
    "a misspelt name": ({"generator.bytes": 9}, "there is no setting 'generator.bytes'"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "problem"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_contradictions_are_one_sentence(changes, problem):
    with pytest.raises(BadSettings) as refused:
        override(preset("fast", GREY), changes)
    message = str(refused.value)
    assert problem in message
    assert "\n" not in message
    assert "Value error" not in message


def test_quantised_codes_need_a_target():
    with pytest.raises(BadSettings, match=r"needs either generator.bytes_per_sample or generator.psnr"):
        override(preset("paper-cpu", GREY), {"generator.codes": "quantised", "generator.network": "mlp"})


@pytest.mark.parametrize("name", ["fast", "paper-cpu", "paper"])
@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_settings_are_not_changed_by_what_they_already_are(name, shape):
    settings = preset(name, shape)
    own = {name: value for name, value, _ in described(settings) if name not in ("preset", "image_shape")}
    assert override(settings, own) == settings
    assert override(settings, {}) == settings


def test_the_command_line_takes_one_of_the_three():
    assert parse_changes(None) == {}
    assert parse_changes(["unit = 7"], bits=80) == {"bits": 80, "unit": "7"}
    assert parse_changes([], bytes_per_sample=2.5) == {"generator.bytes_per_sample": 2.5}
    assert parse_changes([], psnr=30) == {"generator.psnr": 30}
    for two in (
        {"bits": 8, "psnr": 3},
        {"bits": 8, "bytes_per_sample": 1},
        {"bytes_per_sample": 1, "psnr": 3},
    ):
        with pytest.raises(BadSettings, match="give only one of --bits, --bytes-per-sample and --psnr"):
            parse_changes(None, **two)
    with pytest.raises(BadSettings, match="--set unit has no value"):
        parse_changes(["unit"])
