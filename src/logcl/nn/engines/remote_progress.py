"""How a job in another process says how far it is: events, carried by whatever connects the two.

The job has a `Reporter`, which gathers what it is told and sends it a few times a second; whoever waits for
the job shows it with `Shown`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count

from logcl.core.progress import Advance, Moment, Progress

_EVERY = 0.3
"""Seconds between two letters of a job."""


@dataclass(frozen=True)
class Begun:
    """A bar appears, or with no name all of a job's bars go: it begins, perhaps for the second time."""

    bar: int
    description: str = ""
    total: int = 0


@dataclass(frozen=True)
class Advanced:
    """So many steps are done; with None the bar is at its end."""

    bar: int
    steps: int | None = None
    note: str = ""


Event = Begun | Advanced | Moment
Message = tuple[int, Sequence[Event]]
"""Which job, and what it says."""


class Reporter:
    """A `Progress` that sends what it is told elsewhere."""

    def __init__(self, job: int, send: Callable[[Message], None]) -> None:
        self._job, self._send = job, send
        self._bars = count(1)
        self._events: list[Event] = [Begun(0)]
        self._sent = time.monotonic()

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """One bar, there."""
        bar = next(self._bars)
        self._events.append(Begun(bar, description, total))
        steps = 0

        def advance(more: int = 1, note: str = "") -> None:
            nonlocal steps
            steps += more
            if time.monotonic() - self._sent >= _EVERY:
                self._events.append(Advanced(bar, steps, note))
                steps = 0
                self.send()

        try:
            yield advance
        finally:
            self._events += [Advanced(bar, steps), Advanced(bar)]

    def log(self, moment: Moment) -> None:
        """With the next letter."""
        self._events.append(moment)

    def send(self) -> None:
        """Send what there is, now."""
        events, self._events = self._events, []
        self._sent = time.monotonic()
        if events:
            self._send((self._job, events))


@dataclass
class _Bar:
    context: AbstractContextManager[Advance]
    advance: Advance
    steps: int = 0


@dataclass
class Shown:
    """The bars of all jobs, shown here."""

    progress: Progress
    _bars: dict[tuple[int, int], _Bar] = field(default_factory=dict)

    def show(self, letters: Sequence[Message]) -> None:
        """What jobs have said since."""
        for job, events in letters:
            for event in events:
                if isinstance(event, Moment):
                    self.progress.log(event)
                elif isinstance(event, Begun) and event.bar == 0:
                    self.end(job, undo=True)
                elif isinstance(event, Begun):
                    context = self.progress.track(event.description, event.total)
                    self._bars[job, event.bar] = _Bar(context, context.__enter__())
                elif event.steps is None:
                    self._end(job, event.bar)
                elif (bar := self._bars.get((job, event.bar))) is not None:
                    bar.steps += event.steps
                    bar.advance(event.steps, note=event.note)

    def end(self, job: int, *, undo: bool = False) -> None:
        """Take the bars of a job away; `undo` what they counted if it begins again."""
        for number in [bar for of, bar in self._bars if of == job]:
            self._end(job, number, undo)

    def close(self) -> None:
        """Take all bars away."""
        for job, number in list(self._bars):
            self._end(job, number)

    def _end(self, job: int, number: int, undo: bool = False) -> None:
        bar = self._bars.pop((job, number), None)
        if bar is not None:
            if undo:
                bar.advance(-bar.steps)
            bar.context.__exit__(None, None, None)
