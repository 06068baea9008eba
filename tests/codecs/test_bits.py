"""Index codes never collide, assignments never repeat a code, packing is lossless."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from logcl.codecs.coding import bits as codes


def distinct_rows(bits: codes.Bits) -> int:
    return len(np.unique(codes.pack(bits), axis=0))


@pytest.mark.parametrize("bits", [20, 64, 200])
def test_a_million_indices_have_a_million_codes(bits):
    assert distinct_rows(codes.index_codes(np.arange(2**20), bits)) == 2**20


@given(bits=st.integers(1, 12))
def test_short_codes_use_every_pattern(bits):
    """The map is a bijection: all 2^b indices give all 2^b codes."""
    assert distinct_rows(codes.index_codes(np.arange(2**bits), bits)) == 2**bits


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=50, unique=True), st.integers(64, 300))
def test_far_apart_indices_do_not_collide(indices, bits):
    assert distinct_rows(codes.index_codes(np.array(indices, dtype=np.uint64), bits)) == len(indices)


def test_an_index_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="index 16 needs more than the 4 bits"):
        codes.index_codes(np.array([16]), 4)


@pytest.mark.parametrize("bits", [64, 200])
def test_codes_look_random(bits):
    """Neighbours differ in half of their bits and every bit is balanced: a decoder can tell them apart."""
    rows = codes.index_codes(np.arange(1, 20_001), bits)
    assert np.abs(rows.mean(axis=0) - 0.5).max() < 0.02
    neighbours = (rows[1:] != rows[:-1]).mean(axis=1)
    assert abs(neighbours.mean() - 0.5) < 0.01
    assert neighbours.min() > 0.15


def test_codes_depend_on_the_index_alone():
    together = codes.index_codes(np.arange(100), 130)
    assert np.array_equal(codes.index_codes(np.array([77]), 130)[0], together[77])
    # These values are part of the format: memories written with them must remain decodable.
    assert codes.pack(codes.index_codes(np.array([1, 2**40]), 72)).tobytes().hex() == (
        "fd100ac0ec4a09341dbba42185a39090f82f"
    )


@given(bits=st.integers(1, 5), width=st.integers(1, 9))
def test_superposed_codes_use_every_pattern(bits, width):
    """Address and signs together are a bijection too: 2^(bits + width) indices, as many codes."""
    rows = codes.superposed_codes(np.arange(1, 2 ** (bits + width) + 1), bits, width)
    assert rows.shape[1] == bits + width
    assert distinct_rows(rows) == len(rows)


@given(
    st.lists(st.integers(1, 2**63), min_size=2, max_size=50, unique=True),
    st.integers(1, 20),
    st.integers(64, 200),
)
def test_superposed_codes_far_apart_do_not_collide(indices, bits, width):
    asked = np.array(indices, dtype=np.uint64)
    rows = codes.superposed_codes(asked, bits, width)
    assert distinct_rows(rows) == len(indices)
    assert np.array_equal(codes.superposed_codes(asked[1:], bits, width), rows[1:])  # the index alone decides


@given(turn=st.integers(0, 2**20), k=st.integers(0, 4), blocks=st.integers(1, 5))
def test_neighbours_are_orthogonal_in_every_block(turn, k, blocks):
    signs = codes.signs(codes.orthogonal_codes(turn * 2**k + np.arange(2**k), max(blocks * 2**k, 32)))
    for first in range(0, blocks * 2**k, 2**k):
        block = signs[:, first : first + 2**k]
        assert np.array_equal(block @ block.T, 2**k * np.eye(2**k))


@given(start=st.integers(1, 10_000), bits=st.integers(1, 7), count=st.integers(1, 500))
def test_superposed_codes_share_rows_evenly(start, bits, count):
    address = codes.superposed_codes(np.arange(start, start + count), bits, 64)[:, :bits]
    loads = np.bincount(address @ 2 ** np.arange(bits), minlength=2**bits)
    assert loads.max() - loads.min() <= 1


def test_superposed_codes_are_part_of_the_format():
    rows = codes.superposed_codes(np.array([1, 2, 5000, 2**40]), 12, 72)
    assert codes.pack(rows).tobytes().hex() == (
        "0000000000000000000000010000000000000000000087a3aaaaaaaaaaaaaaaa0aff6f719b64d657b8ccf10b"
    )


@st.composite
def matchings(draw):
    n, extra, bits = draw(st.integers(1, 12)), draw(st.integers(0, 5)), draw(st.integers(5, 9))
    embeddings = draw(
        hnp.arrays(np.float32, (n, bits), elements=st.floats(-2, 2, width=32, allow_subnormal=False))
    )
    return embeddings, codes.signs(codes.index_codes(np.arange(n + extra), bits))


@given(matchings())
def test_assignments_are_one_to_one(case):
    embeddings, targets = case
    chosen = codes.nearest_free(embeddings, targets)
    assert chosen.shape == (len(embeddings),)
    assert len(set(chosen.tolist())) == len(embeddings)
    free = np.setdiff1d(np.arange(len(targets)), chosen)
    if len(free):  # no sample is closer to a free code than to its own
        costs = ((embeddings - targets[chosen]) ** 2).sum(axis=1)
        others = ((embeddings[:, None] - targets[free][None]) ** 2).sum(axis=2)
        assert (costs[:, None] <= others + 1e-3).all()


def test_greedy_takes_exact_matches_first():
    targets = codes.signs(codes.index_codes(np.arange(500), 64))
    shuffled = np.random.default_rng(0).permutation(500)
    assert np.array_equal(codes.nearest_free(targets[shuffled] * 0.9, targets), shuffled)


def test_too_few_codes_are_refused():
    with pytest.raises(ValueError, match="3 samples cannot share 2 codes"):
        codes.nearest_free(np.zeros((3, 4)), np.ones((2, 4)))
    with pytest.raises(ValueError, match="embeddings have 4 numbers"):
        codes.nearest_free(np.zeros((1, 4)), np.ones((2, 5)))


@given(
    hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=40), elements=st.integers(0, 1))
)
def test_bits_survive_packing(bits):
    packed = codes.pack(bits)
    assert packed.shape == (len(bits), -(-bits.shape[1] // 8))
    assert np.array_equal(codes.unpack(packed, bits.shape[1]), bits)
    assert np.array_equal(np.sign(codes.signs(bits)) > 0, bits > 0)


@given(st.lists(st.integers(0, 2**40), max_size=60), st.integers(0, 8))
def test_integers_survive_packing(values, spare):
    bits = codes.integer_bits(max(values, default=0)) + spare
    packed = codes.pack_integers(np.array(values, dtype=np.int64), bits)
    assert len(packed) == -(-len(values) * bits // 8)
    assert codes.unpack_integers(packed, bits, len(values)).tolist() == values


def test_integers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not fit 2 bits"):
        codes.pack_integers(np.array([4]), 2)
