"""Streams side by side: every symbol comes back, for as many bits as it should take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl.codecs.coding import ans
from logcl.core.errors import Damaged


def intervals(rng: np.random.Generator, steps: int, streams: int, symbols: int):
    """Random frequencies for every symbol, and which symbol comes."""
    weights = rng.gamma(0.3, size=(steps, symbols, streams)) + 1e-3
    sizes = np.floor(weights / weights.sum(1, keepdims=True) * (ans.TOTAL - symbols)).astype(np.int64) + 1
    sizes[:, 0] += ans.TOTAL - sizes.sum(1)
    cumulative = np.zeros((steps, symbols + 1, streams), np.int32)
    cumulative[:, 1:] = np.cumsum(sizes, axis=1)
    chosen = rng.integers(0, symbols, (steps, streams))
    starts = np.take_along_axis(cumulative, chosen[:, None], 1)[:, 0]
    return cumulative, chosen, starts, np.take_along_axis(sizes, chosen[:, None], 1)[:, 0]


@given(
    seed=st.integers(0, 999),
    steps=st.integers(1, 60),
    streams=st.sampled_from([1, 2, 9, 40]),
    symbols=st.integers(2, 30),
)
def test_every_symbol_comes_back(seed, steps, streams, symbols):
    cumulative, chosen, starts, sizes = intervals(np.random.default_rng(seed), steps, streams, symbols)
    coded = ans.encode(starts.astype(np.uint16), sizes.astype(np.uint16))
    again = ans.restore(coded.arrays(), streams, "level-0")
    decoder = ans.Decoder(again)
    assert [decoder.take(some).tolist() for some in cumulative] == chosen.tolist()
    assert decoder.finished


@pytest.mark.parametrize("streams", [1, 5, 40])
def test_few_streams_are_encoded_as_many_are(streams, monkeypatch):
    _, _, starts, sizes = intervals(np.random.default_rng(streams), 300, streams, 7)
    found = []
    for few in (0, streams):
        monkeypatch.setattr(ans, "_FEW", few)
        found.append(ans.encode(starts.astype(np.uint16), sizes.astype(np.uint16)))
    assert np.array_equal(found[0].lengths, found[1].lengths)
    assert np.array_equal(found[0].words, found[1].words)


def test_bytes_are_what_information_theory_says():
    rng = np.random.default_rng(0)
    _, _, starts, sizes = intervals(rng, 4000, 8, 6)
    coded = ans.encode(starts.astype(np.uint16), sizes.astype(np.uint16))
    bits = np.log2(ans.TOTAL / sizes).sum(axis=0)
    assert coded.lengths * 16 - 32 == pytest.approx(bits, rel=0.002, abs=16)


@given(seed=st.integers(0, 999), rows=st.lists(st.integers(0, 6), max_size=9))
def test_streams_are_taken_and_joined(seed, rows):
    _, _, starts, sizes = intervals(np.random.default_rng(seed), 20, 7, 5)
    coded = ans.encode(starts.astype(np.uint16), sizes.astype(np.uint16))
    one_by_one = ans.join([coded.select(np.array([row])) for row in rows]) if rows else None
    taken = coded.select(np.array(rows, dtype=np.intp))
    assert len(taken) == len(rows)
    if one_by_one is not None:
        assert np.array_equal(one_by_one.words, taken.words)


def test_what_certainly_comes_takes_nothing():
    coded = ans.encode(np.zeros((500, 3), np.uint16), np.full((500, 3), ans.TOTAL, np.uint16))
    assert coded.lengths.tolist() == [2, 2, 2]


def test_damage_is_found():
    rng = np.random.default_rng(1)
    cumulative, _, starts, sizes = intervals(rng, 300, 4, 8)
    coded = ans.encode(starts.astype(np.uint16), sizes.astype(np.uint16))
    found = 0
    for _ in range(50):
        words = coded.words.copy()
        words[rng.integers(len(words))] ^= np.uint16(1 << rng.integers(16))
        decoder = ans.Decoder(ans.Streams(coded.lengths, words))
        for some in cumulative:
            decoder.take(some)
        found += not decoder.finished
    assert found >= 49


@pytest.mark.parametrize("lie", ["words", "lengths", "odd", "long", "few"])
def test_arrays_that_contradict_each_other_are_refused(lie):
    _, _, starts, sizes = intervals(np.random.default_rng(0), 30, 5, 4)
    arrays = ans.encode(starts.astype(np.uint16), sizes.astype(np.uint16)).arrays()
    streams = 4 if lie == "few" else 5
    if lie in arrays:
        arrays.pop(lie)
    elif lie == "odd":
        arrays["words"] = arrays["words"][:-1]
    elif lie == "long":
        arrays["words"] = np.append(arrays["words"], np.zeros(2, np.uint8))
    with pytest.raises(Damaged, match="level-0"):
        ans.restore(arrays, streams, "level-0")
