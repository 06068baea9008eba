"""A memory as a data set of torch, with workers, samplers and pinned memory."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, SubsetRandomSampler, WeightedRandomSampler

from logcl import Memory
from logcl.core.errors import BadInput, NotTrained
from logcl.core.sharding import Shard


@pytest.fixture(scope="module")
def memory(tmp_path_factory, digits):
    """Three levels and a buffer: 230 samples whose labels are their sample indices."""
    quick = {"codec.name": "autoencoder", "codec.min_steps": 0, "codec.epochs": 2}
    path = tmp_path_factory.mktemp("memory") / "pets.logcl"
    memory = Memory.open(path, (1, 8, 8), unit=32, settings=quick)
    memory.absorb(digits[0][:230], np.arange(1, 231))
    return memory


@pytest.fixture
def expected(memory):
    x, _ = memory.snapshot().everything()
    return x.float() / 255


@pytest.fixture
def own_randomness():
    """Loaders draw from torch's global random state."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        yield


pytestmark = [
    pytest.mark.usefixtures("own_randomness"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


def loaders(memory, workers):
    common = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
    yield DataLoader(memory.dataset(), batch_size=32, shuffle=True, **common)
    yield DataLoader(memory.dataset(iterable=True), batch_size=32, **common)
    yield DataLoader(memory.dataset(iterable=True, batch_size=32), batch_size=None, **common)


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_every_loader_yields_each_sample_once_per_epoch_in_a_new_order(memory, expected, workers):
    for loader in loaders(memory, workers):
        passes = []
        for _ in range(2):
            batches = list(loader)
            assert all(len(y) <= 32 for _, y in batches)
            y = torch.cat([y for _, y in batches])
            x = torch.cat([x for x, _ in batches])
            assert sorted(y.tolist()) == list(range(1, 231))
            assert torch.allclose(x, expected[y - 1], atol=1e-6)
            passes.append(y.tolist())
        assert passes[0] != passes[1]


def test_persistent_workers_yield_a_new_order_too(memory):
    stream = memory.dataset(iterable=True, batch_size=50)
    loader = DataLoader(
        stream, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    first, second = (torch.cat([y for _, y in loader]).tolist() for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(1, 231))
    assert first != second


def test_the_order_comes_from_the_loaders_generator(memory):
    def order(seed):
        generator = torch.Generator().manual_seed(seed)
        stream = memory.dataset(iterable=True, batch_size=50)
        loader = DataLoader(
            stream, batch_size=None, num_workers=1, generator=generator, multiprocessing_context="fork"
        )
        return [y.tolist() for _, y in loader]

    assert order(1) == order(1) != order(2)


def test_spawned_workers_get_the_memory_as_well(memory):
    stream = memory.dataset(iterable=True, batch_size=64)
    loader = DataLoader(stream, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert sorted(torch.cat([y for _, y in loader]).tolist()) == list(range(1, 231))


def test_samplers_choose_from_the_map_style_data_set(memory):
    dataset = memory.dataset()
    some = DataLoader(dataset, batch_size=8, sampler=SubsetRandomSampler([3, 100, 229]))
    assert sorted(torch.cat([y for _, y in some]).tolist()) == [4, 101, 230]
    weights = torch.zeros(230)
    weights[7] = 1
    heavy = DataLoader(dataset, batch_size=8, sampler=WeightedRandomSampler(weights.tolist(), 20))
    assert set(torch.cat([y for _, y in heavy]).tolist()) == {8}


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
def test_pinned_memory_without_an_accelerator_does_no_harm(memory):
    for loader in (
        DataLoader(memory.dataset(), batch_size=64, pin_memory=True),
        DataLoader(memory.dataset(iterable=True, batch_size=64), batch_size=None, pin_memory=True),
    ):
        batches = list(loader)
        assert all(x.is_pinned() == torch.cuda.is_available() for x, _ in batches)
        assert sum(len(y) for _, y in batches) == 230


def test_several_processes_share_the_samples(memory):
    parts = [memory.dataset(iterable=True, batch_size=16, shard=(rank, 3)) for rank in range(3)]
    found = [torch.cat([y for _, y in part]).tolist() for part in parts]
    assert sorted(index for part in found for index in part) == list(range(1, 231))
    two = DataLoader(parts[0], batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert sorted(torch.cat([y for _, y in two]).tolist()) == sorted(found[0])


@pytest.mark.parametrize("n", [0, 1, 5, 17])
def test_shards_cut_the_samples_into_parts(n):
    for of in (1, 2, 5):
        whole = sorted(index for rank in range(of) for index in Shard(rank, of).positions(n))
        assert whole == list(range(n))
        mine = Shard(of - 1, of)
        halves = [mine.split(rank, 2).positions(n) for rank in range(2)]
        assert sorted([*halves[0], *halves[1]]) == list(mine.positions(n))


def test_a_data_set_is_a_snapshot_and_can_be_pickled(memory, tmp_path, digits):
    sent = pickle.loads(pickle.dumps(memory.dataset()))  # noqa: S301 - its own
    assert len(sent) == 230
    assert torch.equal(sent[5][0], memory.dataset()[5][0])


def test_invalid_arguments_are_refused_in_a_sentence(memory, tmp_path):
    with pytest.raises(BadInput, match="batch_size is 0"):
        memory.dataset(iterable=True, batch_size=0)
    with pytest.raises(BadInput, match=r"shard is \(3, 3\)"):
        memory.dataset(iterable=True, shard=(3, 3))
    with pytest.raises(BadInput, match="iterable=True"):
        memory.dataset(batch_size=8)
    with pytest.raises(NotTrained, match="holds no samples"):
        Memory.open(tmp_path / "new.logcl", (1, 8, 8)).dataset(iterable=True)
