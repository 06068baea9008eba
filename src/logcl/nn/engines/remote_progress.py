"""Progress of jobs in other processes: the job's `Reporter` sends events, a `Display` shows them here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from logcl.core.progress import Advance, Moment, Progress

_INTERVAL = 0.3
"""Seconds between two messages of a job."""


class Started(NamedTuple):
    """The job starts, possibly again after its worker died: steps of unfinished bars are undone."""


class Steps(NamedTuple):
    """Steps of one bar since its last event; the first event opens the bar."""

    bar: int
    description: str
    total: int
    steps: int
    note: str
    last: bool


Event = Started | Steps | Moment
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
        bar, unsent = next(self._bars), 0

        def report(note: str = "", last: bool = False) -> None:
            nonlocal unsent
            self._events.append(Steps(bar, description, total, unsent, note, last))
            unsent = 0

        def advance(steps: int = 1, note: str = "") -> None:
            nonlocal unsent
            unsent += steps
            if time.monotonic() - self._sent >= _INTERVAL:
                report(note)
                self.send()

        report()
        try:
            yield advance
        finally:
            report(last=True)

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
        self._bars: dict[tuple[int, int], _Bar] = {}  # by job and number of the bar

    def show(self, messages: Sequence[Message]) -> None:
        """Apply the events of the messages, in order."""
        for job, events in messages:
            for event in events:
                if isinstance(event, Moment):
                    self._progress.log(event)
                elif isinstance(event, Started):
                    self.end(job, undo=True)
                else:
                    key = job, event.bar
                    if key not in self._bars:
                        self._bars[key] = _Bar(self._progress, event)
                    self._bars[key].advance(event.steps, event.note)
                    if event.last:
                        self._bars.pop(key).close()

    def end(self, job: int | None = None, *, undo: bool = False) -> None:
        """Close the open bars of a job, or of all jobs; `undo` subtracts their steps."""
        for key in [key for key in self._bars if job in (None, key[0])]:
            bar = self._bars.pop(key)
            if undo:
                bar.advance(-bar.steps)
            bar.close()


class _Bar:
    """An open bar that counts its steps."""

    def __init__(self, progress: Progress, event: Steps) -> None:
        self._context = progress.track(event.description, event.total)
        self._advance = self._context.__enter__()
        self.steps = 0

    def advance(self, steps: int, note: str = "") -> None:
        self.steps += steps
        self._advance(steps, note=note)

    def close(self) -> None:
        self._context.__exit__(None, None, None)
