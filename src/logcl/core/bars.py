"""Progress bars on a terminal. Apart from `progress` because rich.progress is slow to import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from logcl.core.progress import Advance, Progress


class Bars(Progress):
    """Bars on stderr that disappear when the job ends; nothing is shown if stderr is not a terminal.

    `above` is called at every refresh and returns what to show above the bars.
    """

    def __init__(
        self, console: Console | None = None, above: Callable[[], RenderableType] | None = None
    ) -> None:
        console = console or Console(stderr=True)
        self._rich = _Below(
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

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the bars before something else is printed."""
        self._rich.stop()

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """One bar, below the bars of the enclosing jobs."""
        bar = self._rich.add_task(description, total=total, note="")

        def advance(steps: int = 1, note: str = "") -> None:
            self._rich.update(bar, advance=steps, note=note)

        try:
            yield advance
        finally:
            self._rich.remove_task(bar)


class _Below(RichProgress):
    """Bars below something else that is redrawn with them."""

    above: Callable[[], RenderableType] | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.above is not None:
            yield self.above()
        yield from super().get_renderables()
