"""Where independent jobs run: in this process, or on the machines of a cluster.

Fits and experiments are handed to an `Engine` as jobs; each result is returned as soon as it is ready. A
result depends only on the job's arguments, so every engine gives the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from logcl.core.progress import Progress
from logcl.core.sharding import ALL

T = TypeVar("T")


@dataclass(frozen=True)
class Job(Generic[T]):
    """A call of an importable function with arguments that can be pickled."""

    name: str
    """For messages."""
    function: Callable[..., T]
    """Called with the arguments and a `Progress`; `together` passes a `Shard` before the progress."""
    arguments: tuple[Any, ...] = ()


class Engine(Protocol):
    """Runs jobs."""

    workers: int
    """Number of jobs that run at the same time."""

    def run(self, jobs: Iterable[Job[T]], progress: Progress) -> Iterator[tuple[Job[T], T]]:
        """Jobs with their results, in order of completion.

        A job is taken from the iterable only when a worker is free.
        """

    def together(self, job: Job[T], progress: Progress) -> T:
        """Run one job in all workers at once, each with its shard of the samples; the result of rank 0.

        The processes communicate through `torch.distributed`.
        """


class Local:
    """Runs jobs in this process, one after the other."""

    workers = 1

    def run(self, jobs: Iterable[Job[T]], progress: Progress) -> Iterator[tuple[Job[T], T]]:
        """In the given order."""
        for job in jobs:
            yield job, job.function(*job.arguments, progress)

    def together(self, job: Job[T], progress: Progress) -> T:
        """With a single shard of all samples."""
        return job.function(*job.arguments, ALL, progress)
