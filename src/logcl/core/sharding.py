"""Which samples each of several processes works on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """Which of n samples one process has, of `of` that share them: every so-manieth, so that none has two
    sorts of samples more than another.
    """

    rank: int = 0
    of: int = 1

    def indices(self, n: int) -> range:
        """Sample indices, from 1 on."""
        return range(self.rank + 1, n + 1, self.of)

    def split(self, rank: int, of: int) -> Share:
        """The part of this share that one of several helpers has."""
        return Share(self.rank + self.of * rank, self.of * of)


ALL = Share()
"""The share of a process that has no other beside it."""
