"""Sizes as users write them."""

import numpy as np
import pytest

from logcl.core.errors import BadSettings
from logcl.core.sizes import ImageSize, parse_size


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        (64, (None, 64, 64)),
        ("64", (None, 64, 64)),
        (np.int64(64), (None, 64, 64)),
        ([64], (None, 64, 64)),
        ((48, 64), (None, 48, 64)),
        ("48x64", (None, 48, 64)),
        ((3, 48, 64), (3, 48, 64)),
        ("3X48X64", (3, 48, 64)),
        (np.array([1, 48, 64]), (1, 48, 64)),
        (ImageSize(None, 8, 9), (None, 8, 9)),
    ],
)
def test_every_way_to_write_a_size(asked, size):
    assert parse_size(asked) == size


@pytest.mark.parametrize(
    "asked",
    ["", "64px", "0", "064", "3x64x64x1", "x64", "64x", "-3", "٦٤", "1234567", 0, -1, 6.5, (), (1, 2, 3, 4),
     (3, None, 4), (3.0, 8, 8), {"a": 1}, None],
)  # fmt: skip
def test_what_is_no_size_is_refused_by_name(asked):
    with pytest.raises(BadSettings, match=r"^--image-shape .*e\.g\. 64, 64x64 or 3x64x64$"):
        parse_size(asked, "--image-shape")


def test_channels_that_were_not_asked_for_are_left_to_the_images():
    assert parse_size(64).shape() == (3, 64, 64)
    assert parse_size(64).shape(1) == (1, 64, 64)
    assert parse_size((3, 64, 64)).shape(1) == (3, 64, 64)
    assert parse_size(64).allows((1, 64, 64))
    assert not parse_size((3, 64, 64)).allows((1, 64, 64))
    assert not parse_size(64).allows((1, 64, 63))
