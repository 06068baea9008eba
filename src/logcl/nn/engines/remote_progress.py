"""Progress of jobs in other processes: a `Reporter` sends the state of its bars to a `Display`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from logcl.core.progress import Advance, Moment, Progress

_INTERVAL = 0.3
"""Seconds between two messages of a job."""


class Bar(NamedTuple):
    """State of a bar; totals, so that a job restarted after its worker died takes its steps back."""

    description: str
    total: int
    steps: float
    note: str = ""
    is_open: bool = True


Message = tuple[int, dict[int, Bar], list[Moment | str]]
"""Number of the job, its bars by number, and the moments and what was said since its last message."""


class Reporter(Progress):
    """The `Progress` of a job that runs in another process."""

    def __init__(self, job: int, send: Callable[[Message], None]) -> None:
        self._job, self._send = job, send
        self._bars: dict[int, Bar] = {}
        self._opened = 0
        self._moments: list[Moment | str] = []
        self._sent = time.monotonic()

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """Show one bar in the process that displays this job."""
        self._opened = number = self._opened + 1
        self._bars[number] = Bar(description, total, 0)

        def advance(steps: float = 1, note: str = "") -> None:
            bar = self._bars[number]
            self._bars[number] = bar._replace(steps=bar.steps + steps, note=note)
            if time.monotonic() - self._sent >= _INTERVAL:
                self.send()

        try:
            yield advance
        finally:
            self._bars[number] = self._bars[number]._replace(is_open=False)

    def log(self, moment: Moment) -> None:
        """Send the moment with the next message."""
        self._moments.append(moment)

    def say(self, text: str) -> None:
        """Send the text with the next message."""
        self._moments.append(text)

    def send(self) -> None:
        """Send the current state now."""
        self._send((self._job, dict(self._bars), self._moments))
        self._bars = {number: bar for number, bar in self._bars.items() if bar.is_open}
        self._moments = []
        self._sent = time.monotonic()


class Display:
    """Shows the bars of all jobs on a `Progress` of this process, and logs their moments to it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        # By job and number of the bar: its context, how to advance it, and the steps shown.
        self._shown: dict[tuple[int, int], tuple[AbstractContextManager[Advance], Advance, float]] = {}

    def show(self, messages: Sequence[Message]) -> None:
        """Bring the bars up to date with the messages, in order."""
        for job, bars, moments in messages:
            for moment in moments:
                if isinstance(moment, str):
                    self._progress.say(moment)
                else:
                    self._progress.log(moment)
            for number, bar in bars.items():
                key = job, number
                if key not in self._shown:
                    context = self._progress.track(bar.description, bar.total)
                    self._shown[key] = context, context.__enter__(), 0
                context, advance, steps = self._shown.pop(key)
                advance(bar.steps - steps, note=bar.note)
                if bar.is_open:
                    self._shown[key] = context, advance, bar.steps
                else:
                    context.__exit__(None, None, None)

    def end(self, job: int | None = None) -> None:
        """Close the open bars of a job, or of all jobs."""
        for key in [key for key in self._shown if job in (None, key[0])]:
            self._shown.pop(key)[0].__exit__(None, None, None)
