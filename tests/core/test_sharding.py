"""Shards: every sample in exactly one, sizes that differ by at most one, neighbours in different shards."""

from hypothesis import given
from hypothesis import strategies as st

from logcl.core.sharding import ALL, Shard

counts = st.integers(1, 12)


@given(n=st.integers(0, 500), count=counts)
def test_shards_partition_the_samples_evenly(n, count):
    shards = [Shard(rank, count).positions(n) for rank in range(count)]
    assert sorted(position for shard in shards for position in shard) == list(range(n))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    assert [position % count for position in range(n)] == [
        next(rank for rank, shard in enumerate(shards) if position in shard) for position in range(n)
    ]


@given(n=st.integers(0, 500), count=counts, workers=counts, data=st.data())
def test_a_split_shard_holds_the_same_samples(n, count, workers, data):
    shard = Shard(data.draw(st.integers(0, count - 1)), count)
    parts = [shard.split(worker, workers).positions(n) for worker in range(workers)]
    assert sorted(position for part in parts for position in part) == list(shard.positions(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_single_process_has_all_samples():
    assert ALL.positions(5) == range(5)
