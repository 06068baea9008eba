"""Progress of jobs in other processes: the job's `Reporter` sends events, a `Display` shows them here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import NamedTuple

from logcl.core.progress import Advance, Moment, Progress

_INTERVAL = 0.3
"""Seconds between two messages of a job."""


class Started(NamedTuple):
    """The job starts, possibly again after its worker died: open bars of an earlier attempt are undone."""


class Opened(NamedTuple):
    """A new bar."""

    bar: int
    description: str
    total: int


class Advanced(NamedTuple):
    """More steps on a bar."""

    bar: int
    steps: int
    note: str


class Closed(NamedTuple):
    """The end of a bar."""

    bar: int


Event = Started | Opened | Advanced | Closed | Moment
Message = tuple[int, Sequence[Event]]
"""Number of the job, and its events since the last message."""


class Reporter(Progress):
    """The `Progress` of a job that runs in another process: collects events and sends them."""

    def __init__(self, job: int, send: Callable[[Message], None]) -> None:
        self._job, self._send = job, send
        self._bars = count(1)
        self._events: list[Event] = [Started()]
        self._sent = time.monotonic()

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """Show one bar in the process that displays this job."""
        bar = next(self._bars)
        self._events.append(Opened(bar, description, total))
        unsent = 0

        def advance(steps: int = 1, note: str = "") -> None:
            nonlocal unsent
            unsent += steps
            if time.monotonic() - self._sent >= _INTERVAL:
                self._events.append(Advanced(bar, unsent, note))
                unsent = 0
                self.send()

        try:
            yield advance
        finally:
            self._events += [Advanced(bar, unsent, ""), Closed(bar)]

    def log(self, moment: Moment) -> None:
        """Send the moment with the next message."""
        self._events.append(moment)

    def send(self) -> None:
        """Send the collected events now."""
        events, self._events = self._events, []
        self._sent = time.monotonic()
        if events:
            self._send((self._job, events))


class Display:
    """Shows the bars of all jobs on a `Progress` of this process, and logs their moments to it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[int, dict[int, _Bar]] = {}  # by job, then by number of the bar

    def show(self, messages: Sequence[Message]) -> None:
        """Apply the events of the messages, in order."""
        for job, events in messages:
            for event in events:
                bars = self._bars.setdefault(job, {})
                match event:
                    case Moment():
                        self._progress.log(event)
                    case Started():
                        for bar in bars.values():
                            bar.advance(-bar.steps)
                        self.end(job)
                    case Opened(number, description, total):
                        bars[number] = _Bar(self._progress.track(description, total))
                    # Events of a bar that `end` has closed come too late and are dropped.
                    case Advanced(number, steps, note) if number in bars:
                        bars[number].advance(steps, note)
                    case Closed(number) if number in bars:
                        bars.pop(number).close()

    def end(self, job: int) -> None:
        """Close the bars of a job."""
        for bar in self._bars.pop(job, {}).values():
            bar.close()

    def close(self) -> None:
        """Close all bars."""
        for job in list(self._bars):
            self.end(job)


class _Bar:
    """An open bar that counts its steps."""

    def __init__(self, context: AbstractContextManager[Advance]) -> None:
        self._context, self._advance = context, context.__enter__()
        self.steps = 0

    def advance(self, steps: int, note: str = "") -> None:
        self.steps += steps
        self._advance(steps, note=note)

    def close(self) -> None:
        self._context.__exit__(None, None, None)
