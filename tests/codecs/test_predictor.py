"""Distributions of integers: complete intervals, from integers and tables that every machine rounds alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl.codecs.coding import ans
from logcl.codecs.pyramid import predictor
from logcl.codecs.pyramid.predictor import REACH, Distributions, squash

OUTPUTS = st.lists(st.integers(-(2**19), 2**19), min_size=5, max_size=5)


@given(OUTPUTS)
def test_intervals_are_complete_and_none_is_empty(outputs):
    found = Distributions.of(np.array(outputs, np.float32)[:, None])
    edges = [int(found.cumulative(np.array([number]), found.expected)[0]) for number in range(2 * REACH + 2)]
    assert edges[0] == 0
    assert edges[-1] == ans.TOTAL
    assert min(np.diff(edges)) > 0


@given(mean=st.integers(-900, 900), scale=st.integers(-150, 100))
def test_the_expected_integer_is_the_most_frequent(mean, scale):
    found = Distributions.of(np.array([[0], [mean], [mean], [scale], [scale]], np.float32))
    edges = [int(found.cumulative(np.array([number]), found.expected)[0]) for number in range(2 * REACH + 2)]
    inner = np.diff(edges)[1:-1]
    assert inner[REACH - 1] >= 0.9 * inner.max()


@pytest.mark.parametrize("table", ["_squash", "_logistic", "_sharpness"])
def test_no_entry_of_a_table_is_near_a_half(table):
    """Otherwise another machine's logarithms could round it to another integer."""
    if table == "_squash":
        exact = predictor.INPUT_UNIT * np.log2(1 + np.arange(predictor._SQUASHED) / predictor.UNIT)
    elif table == "_logistic":
        half = predictor._LOGISTIC_SPAN * predictor._LOGISTIC_FINE
        exact = 2.0**16 / (1 + np.exp(-(np.arange(-half, half) + 0.5) / predictor._LOGISTIC_FINE))
    else:
        span = np.arange(predictor.SHARPEST * predictor.UNIT, predictor.FLATTEST * predictor.UNIT + 1)
        exact = 2.0**predictor._FINE * np.exp(-span / predictor.UNIT)
    distance = np.abs(exact - np.floor(exact) - 0.5)
    assert distance.min() > 1e-7  # doubles err by about 1e-11 here


def test_squash_is_odd_and_bounded():
    values = np.arange(-(2**16), 2**16, 7)
    assert np.array_equal(squash(values), -squash(-values))
    assert np.abs(squash(values)).max() <= 8 * predictor.INPUT_UNIT
