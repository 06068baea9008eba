"""Progress: bars nest and disappear, steps are counted once, callbacks see every moment."""

import io
import re
import time
from contextlib import contextmanager

import pytest
from rich.console import Console

from logcl.core.bars import Bars
from logcl.core.progress import CountedProgress, Moment, Silent, WithCallbacks

MOMENT = Moment("global model", 3, 10, {"loss": 0.5})


class Recorder:
    """Keeps every call."""

    def __init__(self):
        self.calls = []

    @contextmanager
    def track(self, description, total):
        self.calls.append((description, total))
        yield lambda steps=1, note="": self.calls.append((steps, note))

    def log(self, moment):
        self.calls.append(moment)


@pytest.mark.parametrize("make", [Silent, lambda: Bars(Console(file=io.StringIO()))], ids=["Silent", "Bars"])
def test_without_a_terminal_nothing_is_shown_or_logged(make, capfd):
    progress = make()
    with progress.track("work", 3) as advance:
        advance()
        advance(2, note="loss 0.5")
    progress.log(MOMENT)
    assert capfd.readouterr() == ("", "")


def test_the_steps_of_all_bars_count_towards_the_whole():
    recorder, counted = Recorder(), []
    progress = CountedProgress(recorder, counted.append)
    for total in (3, 5):
        with progress.track("part", total) as advance:
            advance(total - 1, note="almost")
            advance()
    progress.log(MOMENT)
    assert sum(counted) == 8
    assert recorder.calls == [
        ("part", 3),
        (2, "almost"),
        (1, ""),
        ("part", 5),
        (4, "almost"),
        (1, ""),
        MOMENT,
    ]


def test_callbacks_are_called_in_order_after_the_inner_progress():
    recorder = Recorder()
    first, second = (lambda moment, name=name: recorder.calls.append((name, moment)) for name in "ab")
    progress = WithCallbacks(recorder, [first, second])
    with progress.track("part", 2) as advance:
        advance(2)
    progress.log(MOMENT)
    assert recorder.calls == [("part", 2), (2, ""), MOMENT, ("a", MOMENT), ("b", MOMENT)]


def printed(file: io.StringIO) -> str:
    """What is printed, once there is something."""
    for _ in range(500):
        if "\n" in file.getvalue():
            break
        time.sleep(0.01)
    return file.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch):
    monkeypatch.setattr("logcl.core.bars.EVERY", 0.01)
    file = io.StringIO()
    with (
        Bars(Console(file=file, width=200)) as bars,
        bars.track("out\x1b", 4),
        bars.track("middle", 3),
        bars.track("inner", 10) as advance,
    ):
        for _ in range(5):
            advance(note="loss 0.25")
        time.sleep(0.1)
        first = printed(file).splitlines()[-1]
    assert re.fullmatch(r"out\\x1b 0%; inner 50%, about .* left, loss 0.25", first)
    assert "middle" not in file.getvalue()


def test_a_job_takes_at_least_as_long_as_those_inside_it(monkeypatch):
    """Nineteen of twenty tasks in a second say nothing of the training that is the rest of the twentieth."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    now = 0.0
    monkeypatch.setattr(console, "get_time", lambda: now)
    bars = Bars(console)
    with bars.track("outer", 20) as outer:
        for _ in range(10):
            now += 0.1
            outer()
        with bars.track("inner", 1000) as inner:
            for _ in range(10):
                now += 10
                inner()
            left = [bars._left(bar) for bar in bars._rich.tasks]
    assert left[0] == left[1] == pytest.approx(9900, rel=0.2)


def test_quiet_is_quiet(monkeypatch):
    monkeypatch.setattr("logcl.core.bars.EVERY", 0.001)
    for terminal in (False, True):
        file = io.StringIO()
        with (
            Bars(Console(file=file, force_terminal=terminal), quiet=True) as bars,
            bars.track("work", 4) as advance,
        ):
            advance()
            time.sleep(0.05)
        assert file.getvalue() == ""


def test_bars_on_a_terminal_show_what_is_above_them_and_disappear():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    with (
        Bars(console, above=lambda: "two cells done") as bars,
        bars.track("outer [a]", 4) as outer,
        bars.track("inner", 10) as inner,
    ):
        inner(5, note="loss 0.25")
        outer()
        bars._rich.refresh()
        shown = file.getvalue()
    assert all(text in shown for text in ("two cells done", "outer [a]", "inner", "50%", "25%", "loss 0.25"))
    assert not bars._rich.tasks
    assert file.getvalue().endswith("\x1b[2K")  # the lines are erased


def test_what_is_printed_between_two_jobs_does_not_follow_a_bar_on_its_line():
    """Results go to standard output, which rich does not keep apart from bars on standard error."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    with Bars(console) as bars:
        bars._rich.live.auto_refresh = False  # as between two refreshes
        for number in range(3):
            with bars.track("outer", 4) as outer, bars.track("inner", 10):
                outer()
                bars._rich.refresh()
                assert "25%" in file.getvalue().rpartition("absorbed")[2]
            file.write(f"absorbed {number}\n")
    before = file.getvalue().split("absorbed")[:3]
    assert all(text.endswith("\x1b[2K") for text in before)
