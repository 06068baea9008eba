"""Progress bars on a terminal, lines elsewhere. Separate from `progress`, because rich is slow to import."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, Task, TaskProgressColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from logcl.core.progress import Advance, Progress
from logcl.core.text import human_seconds, printable

EVERY = 30.0
"""Seconds between two lines without a terminal."""
_WINDOW = 300.0  # seconds of work that an estimate is based on: one step may take a minute


class Bars(Progress):
    """Bars on stderr that disappear when the job ends or, without a terminal, a line every half minute.

    `above` is called at every refresh and returns what to show above the bars. `quiet`: show nothing.
    """

    def __init__(
        self,
        console: Console | None = None,
        above: Callable[[], RenderableType] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        console = console or Console(stderr=True)
        self._rich = _Below(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            _TimeLeft(lambda bar: self._left(bar)),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
            speed_estimate_period=_WINDOW,
        )
        self._rich.above = above
        self._in_lines = not (quiet or console.is_terminal)
        self._quiet = quiet
        self._stopped = threading.Event()

    def __enter__(self) -> Bars:
        self._rich.start()
        if self._in_lines:
            threading.Thread(target=self._print_lines, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the bars before something else is printed."""
        self._stopped.set()
        self._rich.stop()

    def say(self, text: str) -> None:
        """Print a line, above the bars."""
        if not self._quiet:
            self._rich.console.print(printable(text))

    def _print_lines(self) -> None:
        """Print the outermost and innermost bar as a line; from a thread, because a step may take minutes."""
        while not self._stopped.wait(EVERY):
            bars = self._rich.tasks
            if line := "; ".join(_sentence(bar, self._left(bar)) for bar in [*bars[:1], *bars[1:][-1:]]):
                self._rich.console.print(line)

    def _left(self, bar: Task) -> float | None:
        """Seconds left, if they are known: a job takes at least as long as those inside it."""
        within = self._rich.tasks
        known = [task.time_remaining for task in within if task.id >= bar.id]
        return None if bar.time_remaining is None else max(left for left in known if left is not None)

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        """One bar, below the bars of the enclosing jobs."""
        bar = self._rich.add_task(description, total=total, note="")

        def advance(steps: float = 1, note: str = "") -> None:
            self._rich.update(bar, advance=steps, note=note)

        try:
            yield advance
        finally:
            self._rich.remove_task(bar)
            if not self._rich.tasks:
                self._rich.refresh()  # results are printed to stdout, wherever the cursor is


def _sentence(bar: Task, left: float | None) -> str:
    """For example: global model 37%, about 4.1 min left, loss 0.52."""
    parts = [
        f"{bar.description} {bar.percentage:.0f}%",
        "" if left is None else f"about {human_seconds(left)} left",
        bar.fields["note"],
    ]
    return printable(", ".join(part for part in parts if part))


class _TimeLeft(ProgressColumn):
    """Minutes and seconds left, or hours and minutes."""

    max_refresh = 0.5  # seconds

    def __init__(self, left: Callable[[Task], float | None]) -> None:
        super().__init__()
        self._left = left

    def render(self, task: Task) -> Text:
        """Like rich's own column, which knows nothing of the jobs inside this one."""
        left = self._left(task)
        if task.finished or left is None:
            return Text("--:--" if left is None else "00:00", style="progress.remaining")
        minutes, seconds = divmod(int(left), 60)
        hours, minutes = divmod(minutes, 60)
        shown = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"
        return Text(shown, style="progress.remaining")


class _Below(RichProgress):
    """Bars below something else that is redrawn with them."""

    above: Callable[[], RenderableType] | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.above is not None:
            yield self.above()
        yield from super().get_renderables()
