"""Which samples each of several processes works on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shard:
    """One of `count` shards. Samples are dealt round-robin, so that every shard has the same mix of tasks."""

    rank: int = 0
    count: int = 1

    def positions(self, n: int) -> range:
        """0-based positions of this shard's samples among n."""
        return range(self.rank, n, self.count)

    def split(self, rank: int, count: int) -> Shard:
        """Shard `rank` of `count` of this shard: for the workers of one process."""
        return Shard(self.rank + self.count * rank, self.count * count)


ALL = Shard()
"""The only shard of a single process."""
