"""The entropy coder is lossless, close to the entropy, and detects damage."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from logcl.codecs.coding import entropy
from logcl.codecs.coding.entropy import LARGEST, Coded, Symbols
from logcl.core.errors import Damaged

KINDS = ("uniform", "geometric", "two sided", "constant", "some constant", "extremes", "one outlier")


def draw(kind: str, samples: int, channels: int, seed: int) -> Symbols:
    rng = np.random.default_rng(seed)
    shape = samples, channels
    if kind == "uniform":
        symbols = rng.integers(-LARGEST, LARGEST + 1, shape)
    elif kind == "geometric":
        symbols = np.minimum(rng.geometric(0.7, shape), LARGEST) - 1
    elif kind == "two sided":
        symbols = np.rint(rng.laplace(0, rng.exponential(5, channels), shape))
    elif kind == "extremes":
        symbols = rng.choice([-LARGEST, LARGEST], shape)
    else:
        symbols = np.broadcast_to(rng.integers(-LARGEST, LARGEST + 1, channels), shape).copy()
        if kind == "some constant":
            changing = rng.random(channels) < 0.5
            symbols[:, changing] = rng.integers(-2, 3, (samples, int(changing.sum())))
        elif kind == "one outlier":
            symbols[rng.integers(samples), rng.integers(channels)] = rng.choice([-LARGEST, 0, LARGEST])
    return np.clip(symbols, -LARGEST, LARGEST).astype(np.int16)


arrays = st.builds(
    draw, st.sampled_from(KINDS), st.integers(1, 40), st.integers(1, 400), st.integers(0, 2**32 - 1)
)
small_arrays = hnp.arrays(
    np.int16,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.one_of(st.integers(-2, 2), st.integers(-LARGEST, LARGEST)),
)


def decoded(coded: Coded) -> Symbols:
    return entropy.decode(coded, np.arange(coded.samples), "level-0")


@given(st.one_of(arrays, small_arrays))
@example(np.array([[0]], np.int16))
@example(np.array([[-LARGEST], [LARGEST]], np.int16))
@example(np.arange(-LARGEST, LARGEST + 1, dtype=np.int16)[:, None])
@hypothesis_settings(max_examples=60)
def test_symbols_come_back(symbols):
    coded = entropy.encode(symbols)
    back = decoded(coded)
    assert back.dtype == np.int16
    assert np.array_equal(back, symbols)
    assert (coded.samples, coded.channels) == symbols.shape


@given(small_arrays)
def test_equal_symbols_give_equal_bytes_and_are_left_as_they_are(symbols):
    before = symbols.copy()
    first, second = entropy.encode(symbols).tensors(), entropy.encode(before).tensors()
    assert all(np.array_equal(first[key], second[key]) for key in first)
    assert np.array_equal(symbols, before)


@given(arrays, st.data())
@hypothesis_settings(max_examples=15)
def test_any_rows_in_any_order_are_those_of_the_whole(symbols, data):
    rows = data.draw(st.lists(st.integers(0, len(symbols) - 1), max_size=60))
    coded = entropy.encode(symbols)
    some = entropy.decode(coded, np.array(rows, dtype=np.int64), "level-0")
    assert some.shape == (len(rows), symbols.shape[1])
    assert np.array_equal(some, symbols[rows])


@given(arrays)
@hypothesis_settings(max_examples=15)
def test_tensors_hold_all_of_it(symbols):
    tensors = entropy.encode(symbols).tensors()
    assert all(array.ndim == 1 for array in tensors.values())
    back = entropy.from_tensors(tensors, *symbols.shape, "level-0")
    assert np.array_equal(decoded(back), symbols)
    again = back.tensors()
    assert all(np.array_equal(tensors[key], again[key]) for key in tensors)


def bits_of(symbols: Symbols) -> float:
    """Cost of the symbols given the histogram of each channel."""
    total = 0.0
    for channel in symbols.T:
        counts = np.unique(channel, return_counts=True)[1]
        total -= (counts * np.log2(counts / len(channel))).sum()
    return total


@pytest.mark.parametrize(("samples", "channels"), [(2000, 7), (600, 100), (300, 255)])
@pytest.mark.parametrize("kind", ["geometric", "two sided", "some constant"])
def test_the_size_is_near_the_entropy(samples, channels, kind):
    symbols = draw(kind, samples, channels, seed=1)
    coded = entropy.encode(symbols)
    streams = len(coded.lengths)
    least = bits_of(symbols) / 8
    assert 0.999 * least <= len(coded.data) <= 1.03 * least + 4 * streams
    assert entropy.mean_bytes(symbols) * samples == pytest.approx(len(coded.data), rel=0.02, abs=2 * streams)


def test_what_never_changes_costs_next_to_nothing():
    symbols = np.tile(np.arange(-100, 100, dtype=np.int16), (500, 1))
    assert len(entropy.encode(symbols).data) <= 3 * 500 / 16 + 3
    assert entropy.mean_bytes(symbols) < 1


def test_channels_of_like_spread_share_tables_without_costing_much():
    """Tables of thousands of coefficients would be larger than what they code."""
    spread = np.geomspace(0.05, 60, 1500)
    rng = np.random.default_rng(0)
    symbols = np.clip(np.rint(rng.laplace(0, spread, (60, 1500))), -LARGEST, LARGEST).astype(np.int16)
    coded = entropy.encode(symbols)
    assert len(coded.sizes) <= 64
    assert coded.table_of.max() == len(coded.sizes) - 1
    assert np.array_equal(decoded(coded), symbols)
    # The true densities of the symbols, unknown to the coder.
    edges = np.arange(-LARGEST, LARGEST + 1)[:, None] + np.array([-0.5, 0.5])
    ideal = 0.0
    for channel, scale in zip(symbols.T, spread, strict=True):
        below, above = (
            np.where(
                edges > 0, 1 - 0.5 * np.exp(-np.abs(edges) / scale), 0.5 * np.exp(-np.abs(edges) / scale)
            )
        ).T
        ideal -= np.log2((above - below)[channel + LARGEST]).sum()
    assert len(coded.data) < 1.03 * ideal / 8 + 4 * 60


@pytest.mark.parametrize("samples", [3, 15])
def test_an_expensive_row_of_very_many_channels(samples):
    """Each symbol costs slightly more than the ideal; over thousands of symbols that is several bytes."""
    symbols = np.zeros((samples, 16_000), np.int16)
    symbols[0] = 1
    assert np.array_equal(decoded(entropy.encode(symbols)), symbols)


def test_frequencies_add_up_and_leave_nothing_out():
    rng = np.random.default_rng(0)
    for counts in (
        rng.integers(0, 3, 2 * LARGEST + 1) + 1,
        np.array([10**6, 1, 0, 1]),
        np.array([1] * 2000 + [10**9]),
        np.array([5]),
        np.array([1, 1, 1]),
    ):
        frequencies = entropy._scaled(counts)
        assert frequencies.sum() == 4096
        assert np.array_equal(frequencies > 0, counts > 0)


# Damage. Whatever is in the arrays: the symbols as they were, or `Damaged`.


@pytest.fixture(scope="module")
def original() -> Symbols:
    return draw("two sided", 50, 9, seed=4)


def read(tensors, samples: int = 50, channels: int = 9) -> Symbols:
    return decoded(entropy.from_tensors(tensors, samples, channels, "level-0"))


def read_or_refuse(tensors, samples: int = 50, channels: int = 9) -> Symbols | None:
    """None if the damage is detected; any other exception is a failure."""
    try:
        return read(tensors, samples, channels)
    except Damaged:
        return None


def test_every_flipped_byte_of_the_streams_is_noticed(original):
    tensors = entropy.encode(original).tensors()
    for place in range(len(tensors["data"])):
        flipped = tensors["data"].copy()
        flipped[place] ^= 1 << place % 8
        with pytest.raises(Damaged, match="level-0: codes do not decode"):
            read({**tensors, "data": flipped})


@given(st.data())
@hypothesis_settings(max_examples=150)
def test_a_changed_number_anywhere_changes_nothing_or_is_noticed(original, data):
    tensors = entropy.encode(original).tensors()
    key = data.draw(st.sampled_from(sorted(tensors.keys() - {"lowest"})))
    array = tensors[key].copy()
    bounds = np.iinfo(array.dtype)
    place = data.draw(st.integers(0, len(array) - 1))
    array[place] = data.draw(st.integers(int(bounds.min), int(bounds.max)))
    found = read_or_refuse({**tensors, key: array})
    assert found is None or np.array_equal(found, original)


@given(st.data())
@hypothesis_settings(max_examples=100)
def test_forged_arrays_never_raise_anything_else(data):
    """Small random arrays that claim absurd sizes: no crash, no endless loop, no huge allocation."""
    kinds = {"table_of": np.uint8, "lowest": np.int16, "sizes": np.int16, "frequencies": np.uint16,
             "lengths": np.uint8, "data": np.uint8}  # fmt: skip
    lengths = st.one_of(st.just(1), st.integers(0, 5))
    tensors = {
        key: data.draw(hnp.arrays(kind, lengths, elements={"min_value": 0, "max_value": 5}))
        for key, kind in kinds.items()
    }
    samples, channels = data.draw(st.sampled_from([1, 2, 40, 2**60])), data.draw(st.integers(1, 5))
    with pytest.raises(Damaged):
        entropy.from_tensors(tensors, samples, channels, "level-0")


@given(st.data())
@hypothesis_settings(max_examples=60)
def test_forged_streams_end_in_damage_or_symbols_of_the_tables(data):
    """Valid frequencies, some zero, and random bytes."""
    samples, channels = 3, data.draw(st.integers(1, 5))
    cuts = data.draw(st.lists(st.integers(0, 4096), min_size=0, max_size=6).map(sorted))
    frequencies = np.diff([0, *cuts, 4096]).astype(np.uint16)
    stream = data.draw(st.binary(min_size=3, max_size=30))
    tensors = {
        "table_of": np.zeros(channels, np.uint8),
        "lowest": np.array([-2], np.int16),
        "sizes": np.array([len(frequencies)], np.int16),
        "frequencies": frequencies,
        "lengths": np.array([5, len(stream)], np.uint8),
        "data": np.frombuffer(stream, np.uint8),
    }
    coded = entropy.from_tensors(tensors, samples, channels, "level-0")
    try:
        symbols = decoded(coded)
    except Damaged:
        return
    assert (frequencies[symbols + 2] > 0).all()


def test_a_table_with_unused_symbols_decodes():
    """Zero frequencies are allowed: gaps in a histogram have them."""
    symbols = np.array([[0], [500], [0], [0], [-500]], np.int16)
    coded = entropy.encode(symbols)
    assert (coded.frequencies == 0).sum() == 998
    assert np.array_equal(decoded(coded), symbols)


def longer(array):
    return np.append(array, array[-1:])


def shorter(array):
    return array[:-1]


@pytest.mark.parametrize("key", ["table_of", "lowest", "sizes", "frequencies", "lengths", "data"])
@pytest.mark.parametrize(
    "damage",
    [
        longer, shorter, lambda a: a[:0], lambda a: a[None], lambda a: a.astype(np.int32),
        lambda a: a.astype(np.float32), lambda a: a.reshape(-1, 1),
    ],
    ids=["longer", "shorter", "empty", "a row", "int32", "float32", "a column"],
)  # fmt: skip
def test_arrays_of_another_size_or_type_are_refused(original, key, damage):
    tensors = entropy.encode(original).tensors()
    with pytest.raises(Damaged, match="level-0"):
        read({**tensors, key: damage(tensors[key])})
    del tensors[key]
    with pytest.raises(Damaged, match="level-0: tables are missing"):
        read(tensors)


def test_every_cut_of_the_streams_is_refused(original):
    tensors = entropy.encode(original).tensors()
    for size in range(len(tensors["data"])):
        with pytest.raises(Damaged, match="level-0: streams have the wrong size"):
            read({**tensors, "data": tensors["data"][:size]})


def test_contradictions_are_named(original):
    tensors = entropy.encode(original).tensors()
    coded = entropy.encode(original)
    frequencies = coded.frequencies.copy()
    frequencies[0] += 1
    table_of = coded.table_of.copy()
    table_of[-1] = len(coded.sizes)
    sizes = coded.sizes.copy()
    sizes[:2] += (-1, 1)
    swapped = dataclasses.replace(coded, lengths=coded.lengths + np.resize([1, -1], len(coded.lengths)))
    none = {"lengths": np.zeros(1, np.uint8), "data": np.zeros(0, np.uint8)}
    for changes, problem in (
        ({"frequencies": frequencies}, "tables do not add up"),
        ({"table_of": table_of}, "channels have no table"),
        ({"sizes": sizes}, "tables do not add up"),
        ({"sizes": -coded.sizes}, "tables have the wrong size"),
        ({"lowest": coded.lowest - np.int16(LARGEST)}, "symbols are out of range"),
        ({"lowest": coded.lowest + np.int16(2 * LARGEST)}, "symbols are out of range"),
        ({"lengths": swapped.tensors()["lengths"]}, "codes do not decode"),
        (none, "lengths are missing"),
        ({**none, "lengths": np.array([2, 0], np.uint8)}, "streams have the wrong size"),  # four of no bytes
    ):
        with pytest.raises(Damaged, match=f"level-0: {problem}"):
            read({**tensors, **changes})


def test_the_lowest_symbol_of_a_table_is_not_redundant(original):
    """No check of the codes can detect a change: the digests of the memory file do."""
    tensors = entropy.encode(original).tensors()
    assert np.array_equal(read({**tensors, "lowest": tensors["lowest"] + np.int16(1)}), original + 1)


@pytest.mark.parametrize("samples", [1, 47, 49, 51, 64, 65, 500, 2**60])
@pytest.mark.parametrize("channels", [1, 8, 9, 10, 400])
def test_other_samples_and_channels_than_there_are(original, samples, channels):
    tensors = entropy.encode(original).tensors()
    found = read_or_refuse(tensors, samples, channels)
    # Sixteen samples share a stream: only the number of streams can contradict the number of samples.
    assert (found is not None) == (channels == 9 and 49 <= samples <= 64)
    assert found is None or np.array_equal(found[:50], original[: len(found)])
