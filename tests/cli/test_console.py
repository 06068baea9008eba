"""What the options of a command line mean, before any command runs."""

import pytest

from logcl.cli.console import parse_changes
from logcl.core.errors import BadSettings


def test_the_command_line_takes_one_target():
    assert parse_changes(None) == {}
    assert parse_changes(["unit = 7"]) == {"unit": "7"}
    assert parse_changes([], bytes_per_sample=2.5) == {"codec.bytes_per_sample": 2.5}
    assert parse_changes(["unit=7"], psnr=30) == {"codec.psnr": 30, "unit": "7"}
    with pytest.raises(BadSettings, match="give only one"):
        parse_changes(None, bytes_per_sample=1, psnr=3)
    with pytest.raises(BadSettings, match="--set unit has no value"):
        parse_changes(["unit"])
