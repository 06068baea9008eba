"""Blocks of bounded size, and squared errors that do not depend on them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl.core import images
from logcl.core.images import rows_at_once, squared_errors


@given(st.tuples(st.integers(1, 64), st.integers(1, 4096), st.integers(1, 4096)))
def test_blocks_are_bounded_in_bytes(shape):
    rows = rows_at_once(shape)
    assert 1 <= rows <= 1024
    assert rows == 1 or rows * 4 * np.prod(shape) <= 2**22


def test_blocks_are_bounded_by_the_widest_layer():
    assert rows_at_once((1, 8, 8), widest=2**20) == 16
    assert rows_at_once((1, 8, 8), widest=2**40) == 1


def test_block_sizes():
    assert [rows_at_once(s) for s in ((1, 8, 8), (3, 32, 32), (3, 256, 256))] == [1024, 341, 5]


@pytest.mark.parametrize("block_bytes", [1, 7 * 4 * 18, 2**24], ids=["one image", "seven", "all"])
def test_squared_errors(monkeypatch, block_bytes):
    monkeypatch.setattr(images, "_BLOCK_BYTES", block_bytes)
    x = np.random.default_rng(0).integers(0, 256, (100, 2, 3, 3), dtype=np.uint8)
    z = x[::-1]
    expected = ((x.astype(float) - z) ** 2).mean(axis=(1, 2, 3)) / 255**2
    assert np.allclose(squared_errors(x, z), expected, rtol=1e-5)
    assert squared_errors(x[:0], z[:0]).shape == (0,)
