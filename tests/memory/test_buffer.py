"""The buffer is lossless, refuses lies, and stays in few chunks however small the tasks are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl.core.errors import Damaged
from logcl.memory import buffer
from logcl.memory.samples import raw
from logcl.nn import blobs


@given(st.integers(1, 9), st.integers(1, 2**40), st.integers(0, 2**32))
def test_chunks_come_back_exactly(count, start, seed):
    draw = np.random.default_rng(seed)
    samples = raw(draw.integers(0, 256, (count, 2, 3, 4), dtype=np.uint8), draw.integers(0, 1000, count))
    first, back = buffer.from_bytes(buffer.to_bytes(start, samples), (2, 3, 4), "chunk")
    assert first == start
    assert np.array_equal(back.x, samples.x)
    assert np.array_equal(back.y, samples.y)
    assert back.runs == samples.runs


@given(st.lists(st.integers(1, 40), min_size=1, max_size=300))
def test_few_chunks_and_little_rewriting(sizes):
    """Chunks stay logarithmic in number, and each sample is rewritten a logarithmic number of times."""
    starts, n, written = [], 0, 0
    for size in sizes:
        begin = buffer.chunk_start(starts, n + 1, n + size + 1)
        starts = [start for start in starts if start < begin] + [begin]
        n += size
        written += n + 1 - begin
        counts = np.diff([*starts, n + 1])
        assert counts.sum() == n
        assert all(counts[:-1] > counts[1:])
    assert len(starts) <= n.bit_length() + 1 or max(sizes) > 1
    assert written <= n * (np.log2(n) + 2)


def test_one_sample_at_a_time_is_a_binary_counter():
    starts: list[int] = []
    for n in range(1000):
        begin = buffer.chunk_start(starts, n + 1, n + 2)
        starts = [start for start in starts if start < begin] + [begin]
        assert len(starts) == (n + 1).bit_count()


@pytest.mark.parametrize(
    "lie",
    [{"count": 10**12}, {"count": 3}, {"count": 0}, {"count": -4}, {"label_bits": 63}, {"label_bits": -1},
     {"image_shape": (1, 8, 9)}],
)  # fmt: skip
def test_lies_are_refused_before_they_are_allocated(lie):
    samples = raw(np.zeros((5, 1, 8, 8), np.uint8), np.arange(5))
    about, tensors = blobs.unpack(buffer.to_bytes(1, samples), buffer.Chunk, "chunk")
    forged = blobs.pack(about.model_copy(update=lie), tensors)
    with pytest.raises(Damaged, match=r"chunk does not hold what it describes|chunk is damaged"):
        buffer.from_bytes(forged, (1, 8, 8), "chunk")
