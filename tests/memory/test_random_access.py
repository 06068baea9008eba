"""Samples in any order: the same ones, and each level decoded once where many are drawn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from logcl import Memory
from logcl.memory import random_access
from logcl.memory.local_model import LocalModel
from logcl.memory.random_access import RandomAccess
from tests.helpers import smooth


@pytest.fixture
def now(tmp_path):
    memory = Memory.open(
        tmp_path / "m.logcl", (1, 8, 8), unit=8, settings={"codec.name": "cosine", "codec.psnr": 30}
    )
    memory.absorb(smooth(45, (1, 8, 8)), np.arange(45) % 5)
    return memory.snapshot()


@pytest.fixture
def decoded(monkeypatch):
    """How many samples levels have decoded."""
    count = []
    original = LocalModel.replay
    monkeypatch.setattr(
        LocalModel, "replay", lambda self, indices=None: count.append(0) or original(self, indices)
    )
    return count


def test_the_samples_are_those_of_the_snapshot(now):
    samples, rng = RandomAccess(now), np.random.default_rng(0)
    for _ in range(12):
        positions = rng.integers(0, 45, 7)
        x, y = samples.fetch(positions)
        expected_x, expected_y = now.fetch(now.live[positions])
        assert torch.equal(x, expected_x)
        assert np.array_equal(y, expected_y)


def test_nothing_is_decoded_any_more_after_many_draws(now, decoded):
    samples = RandomAccess(now)
    for _ in range(3):
        samples.fetch(np.arange(5))
    before = len(decoded)
    for _ in range(50):
        samples.fetch(np.arange(45)[::-1])
    assert len(decoded) == before


def test_a_memory_that_is_too_large_is_not_kept(now, decoded, monkeypatch):
    monkeypatch.setattr(random_access, "_KEPT", 0)
    monkeypatch.setattr(random_access, "_KEPT_PER_BYTE", 0)
    samples = RandomAccess(now)
    for _ in range(4):
        before = len(decoded)
        samples.fetch(np.arange(45))
        assert len(decoded) > before


def test_workers_get_no_decoded_images(now):
    samples = RandomAccess(now)
    for _ in range(3):
        samples.fetch(np.arange(45))
    again = pickle.loads(pickle.dumps(samples))  # noqa: S301 - our own
    assert again._all is None
    assert torch.equal(again.fetch(np.arange(9))[0], samples.fetch(np.arange(9))[0])
