"""Who runs work that is independent of other work: this process, or the machines of a cluster.

Parts that have several fits or cells to run hand them to an `Engine` as jobs, and get each result as soon
as it is there. What a job finds depends on its arguments alone, so that every engine finds the same.
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
    """A call of a function that every process can import, with arguments that can be sent to it."""

    name: str
    """For messages."""
    function: Callable[..., T]
    """Called with the arguments and a `Progress`; in `together` with a `Shard` of the samples before that."""
    arguments: tuple[Any, ...] = ()


class Engine(Protocol):
    """Runs jobs somewhere."""

    workers: int
    """How many at once."""

    def run(self, jobs: Iterable[Job[T]], progress: Progress) -> Iterator[tuple[Job[T], T]]:
        """Jobs with their results, in the order in which they are done.

        A job is taken from the iterable when there is room to run it, and not before.
        """

    def together(self, job: Job[T], progress: Progress) -> T:
        """One job in as many processes at once as there is room for, each with its shard of the samples.

        They find each other through `torch.distributed`. The result is that of the first.
        """


class Local:
    """This process: one job after the other."""

    workers = 1

    def run(self, jobs: Iterable[Job[T]], progress: Progress) -> Iterator[tuple[Job[T], T]]:
        """In the order given."""
        for job in jobs:
            yield job, job.function(*job.arguments, progress)

    def together(self, job: Job[T], progress: Progress) -> T:
        """One shard that holds all samples."""
        return job.function(*job.arguments, ALL, progress)
