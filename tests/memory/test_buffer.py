"""The buffer is lossless, refuses false claims, and stays in few chunks however small the tasks are."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from logcl.core.errors import Damaged
from logcl.memory import buffer
from logcl.memory.buffer import Chunk
from logcl.memory.samples import Run, Samples, raw
from logcl.nn import blobs


@given(st.integers(1, 9), st.integers(1, 2**40), st.integers(0, 2**32))
def test_chunks_come_back_exactly(count, start, seed):
    draw = np.random.default_rng(seed)
    x, y = draw.integers(0, 256, (count, 2, 3, 4), dtype=np.uint8), draw.integers(0, 1000, count)
    chunk = Chunk(start, start + count - 1, raw(x, y, start))
    back = buffer.from_bytes(buffer.to_bytes(chunk), (2, 3, 4), "chunk")
    assert (back.start, back.stop) == (start, start + count - 1)
    assert np.array_equal(back.samples.x, x)
    assert np.array_equal(back.samples.y, y)
    assert np.array_equal(back.samples.indices, chunk.samples.indices)
    assert back.samples.runs == chunk.samples.runs


@given(st.sets(st.integers(0, 39), min_size=1), st.integers(1, 2**40))
def test_chunks_with_gaps_know_which_samples_they_hold(held, start):
    offsets = np.array(sorted(held))
    x = np.zeros((len(held), 1, 2, 2), np.uint8)
    chunk = Chunk(start, start + 39, Samples(x, offsets, start + offsets, (Run(len(held)),)))
    back = buffer.from_bytes(buffer.to_bytes(chunk), (1, 2, 2), "chunk")
    assert (back.start, back.stop) == (start, start + 39)
    assert np.array_equal(back.samples.indices, start + offsets)
    assert np.array_equal(back.samples.y, offsets)


def test_chunks_of_format_3_have_no_gaps():
    """Their description has no `stop`."""
    samples = raw(np.zeros((5, 1, 8, 8), np.uint8), np.arange(5), 9)
    about, tensors = blobs.unpack(buffer.to_bytes(Chunk(9, 13, samples)), buffer.Description, "chunk")
    old = safetensors.torch.save(
        tensors, {"logcl": json.dumps(about.model_dump(mode="json", exclude={"stop"}))}
    )
    back = buffer.from_bytes(old, (1, 8, 8), "chunk")
    assert (back.start, back.stop) == (9, 13)
    assert np.array_equal(back.samples.indices, samples.indices)


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
     {"image_shape": (1, 8, 9)}, {"count": 10**12, "stop": 10**12}, {"stop": 4}, {"stop": 6}, {"stop": 2**61},
     {"start": 3}, {"start": 2, "stop": 1}],
)  # fmt: skip
def test_false_claims_are_refused_before_anything_is_allocated(lie):
    samples = raw(np.zeros((5, 1, 8, 8), np.uint8), np.arange(5))
    about, tensors = blobs.unpack(buffer.to_bytes(Chunk(1, 5, samples)), buffer.Description, "chunk")
    forged = blobs.pack(about.model_copy(update=lie), tensors)
    with pytest.raises(Damaged, match=r"chunk (does not|is damaged)"):
        buffer.from_bytes(forged, (1, 8, 8), "chunk")


@pytest.mark.parametrize(
    "mask",
    [None, torch.tensor([255]), torch.tensor([[29]], dtype=torch.uint8), torch.zeros(2, dtype=torch.uint8),
     torch.tensor([0], dtype=torch.uint8), torch.tensor([13], dtype=torch.uint8), torch.tensor([1.0])],
    ids=str,
)  # fmt: skip
def test_false_masks_are_refused(mask):
    """Genuine: samples 1, 3, 4 and 5 of 5, bits 0, 2, 3 and 4."""
    samples = Samples(np.zeros((4, 1, 8, 8), np.uint8), np.arange(4), np.array([1, 3, 4, 5]), (Run(4),))
    about, tensors = blobs.unpack(buffer.to_bytes(Chunk(1, 5, samples)), buffer.Description, "chunk")
    assert tensors["live"].tolist() == [0b11101]
    changed = {key: value for key, value in {**tensors, "live": mask}.items() if value is not None}
    with pytest.raises(Damaged, match="chunk"):
        buffer.from_bytes(blobs.pack(about, changed), (1, 8, 8), "chunk")
