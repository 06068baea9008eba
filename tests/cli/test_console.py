"""What the options of a command line mean, before any command runs."""

import pytest

from logcl.cli.console import parse_changes, parse_shape
from logcl.core.errors import BadSettings


def test_bytes_and_psnr_exclude_each_other():
    assert parse_changes(None) == {}
    assert parse_changes(["unit = 7"]) == {"unit": "7"}
    assert parse_changes([], bytes_per_sample=2.5) == {"codec.bytes_per_sample": 2.5}
    assert parse_changes(["unit=7"], psnr=30) == {"codec.psnr": 30, "unit": "7"}
    with pytest.raises(BadSettings, match="give only one"):
        parse_changes(None, bytes_per_sample=1, psnr=3)
    with pytest.raises(BadSettings, match="--set unit has no value"):
        parse_changes(["unit"])


@pytest.mark.parametrize(
    "text",
    ["1x²x8", "1x٣x8", "1x\uff18x8", "1x8x8x8", "1x-8x8", "1x+8x8", "1x8_0x8", "1x 8x8", " 1x8x8",
     "1x8x8\n", "1x0x8", "1x08x8", "1x1e2x8", "1x8.0x8", "1×8×8", "x", "", "1x" + "9" * 5000 + "x8",
     "1x9999999x8"],
)  # fmt: skip
def test_invalid_shapes_are_refused_in_a_sentence(text):
    with pytest.raises(
        BadSettings, match=r"is not a size of images; write e.g. 64, 64x64 or 3x64x64"
    ) as caught:
        parse_shape(text)
    assert len(str(caught.value)) < 120


def test_shapes():
    assert parse_shape("3x32x48") == parse_shape("3X32x48") == (3, 32, 48)
    assert parse_shape("48") == parse_shape("48x48") == (None, 48, 48)
