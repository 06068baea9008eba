"""Progress with an estimate of the time left: bars on a terminal, silence anywhere else.

Long jobs take a `Progress`, `track` how far they are and `tell` what they find on the way; what is shown or
logged is decided once, by whoever starts the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as RichProgress,
)

Advance = Callable[..., None]
"""`advance(steps=1, note="")`: so many steps are done; `note` is shown behind the bar."""


@dataclass(frozen=True)
class Moment:
    """How a piece of work stands: what a callback is given."""

    what: str
    """Which work, e.g. "global model"."""
    step: int
    steps: int
    """How many steps it has in all."""
    values: Mapping[str, float] = field(default_factory=dict)
    """What was found, by name, e.g. loss and learning_rate."""


Callback = Callable[[Moment], None]


class Progress(Protocol):
    """What a long job needs to say how far it is."""

    def track(self, description: str, total: int) -> AbstractContextManager[Advance]:
        """Show one bar of `total` steps while the context is open."""

    def log(self, moment: Moment) -> None:
        """Something worth logging was found."""


class NoLog:
    """Forgets what it is told: all that shows progress and logs nothing."""

    def log(self, moment: Moment) -> None:
        """Nobody listens."""
        del moment


class Silent(NoLog):
    """Shows nothing: the default of the library."""

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """Accept and forget every step."""
        del description, total

        def advance(steps: int = 1, note: str = "") -> None:
            del steps, note

        yield advance


class CountedProgress:
    """Passes bars on and counts all their steps on one more bar, whose estimate is that of the whole job."""

    def __init__(self, inner: Progress, count: Advance) -> None:
        self._inner = inner
        self._count = count

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """One bar of the inner progress; its steps count for the whole."""
        with self._inner.track(description, total) as advance_inner:

            def advance(steps: int = 1, note: str = "") -> None:
                advance_inner(steps, note=note)
                self._count(steps)

            yield advance

    def log(self, moment: Moment) -> None:
        """To whoever the inner progress tells."""
        self._inner.log(moment)


class WithCallbacks:
    """Shows what the inner progress shows, and tells callbacks as well."""

    def __init__(self, inner: Progress | None, callbacks: Sequence[Callback]) -> None:
        self._inner = inner or Silent()
        self._callbacks = tuple(callbacks)

    def track(self, description: str, total: int) -> AbstractContextManager[Advance]:
        """As the inner progress."""
        return self._inner.track(description, total)

    def log(self, moment: Moment) -> None:
        """Call all of them, in order."""
        self._inner.log(moment)
        for callback in self._callbacks:
            callback(moment)


class _BelowSomething(RichProgress):
    """Bars below whatever else is to be seen while they move."""

    above: Callable[[], RenderableType] | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.above is not None:
            yield self.above()
        yield from super().get_renderables()


class Bars(NoLog):
    """Progress bars on stderr that vanish when the job is done; nothing when stderr is no terminal.

    `above` is asked again and again for what to show above them.
    """

    def __init__(
        self, console: Console | None = None, above: Callable[[], RenderableType] | None = None
    ) -> None:
        console = console or Console(stderr=True)
        self._rich = _BelowSomething(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._rich.above = above

    def __enter__(self) -> Bars:
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the bars away, before something else is printed."""
        self._rich.stop()

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """One bar, below the bars of the jobs that enclose it."""
        bar = self._rich.add_task(description, total=total, note="")

        def advance(steps: int = 1, note: str = "") -> None:
            self._rich.update(bar, advance=steps, note=note)

        try:
            yield advance
        finally:
            self._rich.remove_task(bar)
