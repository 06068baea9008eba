"""Quantised codes: symbols come back exactly, in any order, and forged tensors are refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl.codecs.coding import entropy
from logcl.codecs.quantised import FINENESS, QuantisedCodes
from logcl.core.errors import Damaged
from tests.helpers import code_bytes


@pytest.fixture(scope="module")
def original() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 6, (50, 9)).round().astype(np.int16)


@pytest.fixture(scope="module")
def stored(original) -> QuantisedCodes:
    """Ten images of five blocks each."""
    return QuantisedCodes.of(torch.from_numpy(original), 10)


def test_types_that_numpy_does_not_know_are_refused(original):
    tensors = QuantisedCodes(entropy.encode(original)).tensors()
    back = QuantisedCodes.restore(tensors, 50, 1, 9, "level-0")
    assert np.array_equal(back.inputs(np.array([7, 3])), original[[7, 3]] / np.float32(FINENESS))
    for key in tensors:
        with pytest.raises(Damaged, match="level-0: tables are missing"):
            QuantisedCodes.restore({**tensors, key: tensors[key].to(torch.bfloat16)}, 50, 1, 9, "level-0")


def test_an_image_of_several_blocks_has_as_many_rows(original, stored):
    assert len(stored) == 10
    assert np.array_equal(
        stored.inputs(np.array([9, 0])) * FINENESS, original.reshape(10, 5, 9)[[9, 0]].reshape(10, 9)
    )


@given(rows=st.lists(st.integers(0, 9), min_size=1, max_size=20))
@hypothesis_settings(max_examples=30)
def test_selected_codes_are_those_of_the_whole(stored, rows):
    rows = np.array(rows)
    chosen = stored.select(rows)
    assert len(chosen) == len(rows)
    assert np.array_equal(chosen.symbols(np.arange(len(rows))), stored.symbols(rows))


@given(factor=st.integers(2, 40))
@hypothesis_settings(max_examples=15)
def test_coarser_steps_are_near_and_cost_less(stored, factor):
    coarse = stored.coarsened(factor)
    rows = np.arange(10)
    assert len(coarse) == len(stored)
    assert np.abs(coarse.inputs(rows) - stored.inputs(rows)).max() * FINENESS <= 0.6 * factor + 1e-4
    assert code_bytes(coarse) <= code_bytes(stored)
    back = QuantisedCodes.restore(coarse.tensors(), 10, 5, 9, "level-0")
    assert np.array_equal(back.inputs(rows), coarse.inputs(rows))


def test_whatever_is_coarsened_can_be_read_again(stored):
    """However often: the largest factor that is written is one that is accepted."""
    codes = stored
    for _ in range(20):
        codes = codes.coarsened(2)
    back = QuantisedCodes.restore(codes.tensors(), 10, 5, 9, "level-0")
    assert np.array_equal(back.inputs(np.arange(10)), codes.inputs(np.arange(10)))


@pytest.mark.parametrize(
    "factor",
    [
        torch.tensor([0]), torch.tensor([-2]), torch.tensor([2**40]), torch.tensor([2, 2]), torch.tensor(2),
        torch.tensor([2.0]), torch.tensor([2], dtype=torch.int32), torch.tensor([2], dtype=torch.bfloat16),
        torch.empty(0, dtype=torch.int64),
    ],
    ids=str,
)  # fmt: skip
def test_forged_factors_are_refused(stored, factor):
    with pytest.raises(Damaged, match="level-0"):
        QuantisedCodes.restore({**stored.coarsened(2).tensors(), "factor": factor}, 10, 5, 9, "level-0")


@pytest.mark.parametrize(("samples", "blocks", "length"), [(11, 5, 9), (9, 5, 9), (10, 4, 9), (10, 5, 8)])
def test_other_counts_are_refused(original, samples, blocks, length):
    """Enough samples that every count has streams of its own."""
    tensors = QuantisedCodes.of(torch.from_numpy(np.tile(original, (16, 1))), 160).tensors()
    with pytest.raises(Damaged, match="level-0"):
        QuantisedCodes.restore(tensors, 16 * samples, blocks, length, "level-0")
