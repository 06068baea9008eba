"""Progress of long jobs: bars with the time left, and values to log.

A job takes a `Progress`: it reports its steps with `track` and its findings with `log`. The caller of the
job decides what becomes of them. The bars of a terminal are in `logcl.core.bars`, which imports rich.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

Advance = Callable[..., None]
"""`advance(steps=1, note="")`: count steps, or parts of one, and show `note` behind the bar."""


@dataclass(frozen=True)
class Moment:
    """The state of a job at one step; the argument of a callback."""

    what: str
    """Which job, e.g. "global model"."""
    step: int
    steps: int
    """Total number of steps."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Measured values by name, e.g. loss and learning_rate."""


Callback = Callable[[Moment], None]


class Progress(Protocol):
    """Where a long job reports how far it is."""

    def track(self, description: str, total: int) -> AbstractContextManager[Advance]:
        """Show one bar of `total` steps while the context is open."""

    def log(self, moment: Moment) -> None:
        """Log measured values; subclasses that do not override this ignore them."""
        del moment

    def say(self, text: str) -> None:
        """Tell something that is good to know before the job goes on; ignored like measured values."""
        del text


class Silent(Progress):
    """Shows and logs nothing: the library's default."""

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """Ignore every step."""
        del description, total
        yield lambda *_, **__: None


class WithCallbacks:
    """Calls callbacks with every logged moment, in addition to what the inner progress does."""

    def __init__(self, inner: Progress | None, callbacks: Sequence[Callback]) -> None:
        self._inner = inner or Silent()
        self._callbacks = tuple(callbacks)

    def track(self, description: str, total: int) -> AbstractContextManager[Advance]:
        """One bar of the inner progress."""
        return self._inner.track(description, total)

    def say(self, text: str) -> None:
        """Tell the inner progress."""
        self._inner.say(text)

    def log(self, moment: Moment) -> None:
        """Log to the inner progress, then call the callbacks in order."""
        self._inner.log(moment)
        for callback in self._callbacks:
            callback(moment)


class CountedProgress(WithCallbacks):
    """Also counts the steps of all bars on one bar for the whole job, which estimates the total time left."""

    def __init__(self, inner: Progress, count: Advance) -> None:
        super().__init__(inner, ())
        self._count = count

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """One bar of the inner progress; its steps count towards the whole."""
        with super().track(description, total) as advance_inner:

            def advance(steps: float = 1, note: str = "") -> None:
                advance_inner(steps, note=note)
                self._count(steps)

            yield advance
