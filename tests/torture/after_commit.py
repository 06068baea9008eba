"""Failures after a commit: the task stays absorbed, and no error claims otherwise."""

from __future__ import annotations

import random
import shutil
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from logcl import Memory
from logcl.core.errors import CannotWrite, LogCLError
from logcl.core.progress import Moment, Silent
from logcl.integrations.logs import CSVLog, JSONLinesLog
from tests.torture.commands import save_tasks, start
from tests.torture.outcome import Outcome, Tally

_SIZES = (40, 20)  # the second stays in the buffer: if a log fails during training, the task is refused
_QUICK = {"codec.name": "autoencoder", "codec.epochs": 1, "codec.min_steps": 0}


class Unprintable(Exception):
    """An error whose message cannot be read."""

    def __str__(self) -> str:
        raise ValueError


ERRORS = (
    ValueError("callback"),
    OSError(28, "no space"),
    CannotWrite("log"),
    RecursionError(),
    Unprintable(),
)
Failing = Callable[[Path, Path, random.Random], str]
"""Absorbs a task into a memory while something fails; returns what is wrong ("" if nothing)."""


def trial(tries: int, seed: int, folder: Path) -> Outcome:
    """Let something fail after `tries` commits."""
    rng, tally = random.Random(seed), Tally(folder)
    first, second = save_tasks(folder / "tasks", _SIZES)
    made = Memory.open(folder / "made.logcl", (1, 8, 8), unit=32, settings=_QUICK)
    made.absorb(*_arrays(first))
    for number in range(tries):
        name, failing = list(FAILURES.items())[number % len(FAILURES)]
        place = folder / "try"
        place.mkdir()
        path = place / "m.logcl"
        shutil.copy(made.path, path)
        wrong = failing(path, second, rng) or _held(path, sum(_SIZES))
        tally.count({path.name: path.read_bytes()}, name, wrong)
        tally.details[name] += 1
        shutil.rmtree(place)
    shutil.rmtree(folder / "tasks")
    made.path.unlink()
    return tally.outcome(
        "after commit",
        "callbacks, progress, logs, standard output or the size of the file fail after a task is committed, "
        "or the log cannot be opened before it: either the task is absorbed and no error is raised, or it is "
        "refused and nothing changes",
    )


def _arrays(task: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(task) as arrays:
        return arrays["x"], arrays["y"]


def _held(path: Path, expected: int) -> str:
    """What is wrong with the memory ("" if it holds the expected number of samples)."""
    held = Memory(path).n
    return "" if held == expected else f"holds {held} samples, not {expected}"


def _absorbed(path: Path, task: Path, **observers: object) -> str:
    """Absorb in this process; an observer fails at the moment `memory`, which must be a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            Memory.open(path).absorb(*_arrays(task), **observers)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - any error is a wrong one
            return f"raised {type(error).__name__} after the commit"
    said = [str(warning.message) for warning in caught]
    return "" if any("holds this task" in text for text in said) else f"no warning says that it is in: {said}"


def _callback(path: Path, task: Path, rng: random.Random) -> str:
    error, seen = rng.choice(ERRORS), []

    def raising(moment: Moment) -> None:
        if moment.what == "memory":
            raise error

    wrong = _absorbed(path, task, callbacks=[raising, lambda moment: seen.append(moment.what)])
    return wrong or ("" if "memory" in seen else "the other callback was not called")


def _progress(path: Path, task: Path, rng: random.Random) -> str:
    class Raising(Silent):
        def log(self, moment: Moment) -> None:
            if moment.what == "memory":
                raise rng.choice(ERRORS)

    return _absorbed(path, task, progress=Raising())


def _log_gone(path: Path, task: Path, rng: random.Random) -> str:
    """The folder of the log is deleted while the task is absorbed."""
    place = path.with_name("logs")
    place.mkdir()
    log = rng.choice((CSVLog(place / "a.csv"), JSONLinesLog(place / "a.jsonl")))

    def delete(moment: Moment) -> None:
        if moment.what == "memory":
            shutil.rmtree(place)

    return _absorbed(path, task, callbacks=[delete, log])


def _stray_part(path: Path, task: Path, rng: random.Random) -> str:
    """A part that the header does not list, with a name that is not UTF-8."""
    database = sqlite3.connect(path)
    with database:
        name = bytes(rng.randrange(128, 256) for _ in range(5))
        database.execute("INSERT INTO parts VALUES (CAST(? AS TEXT), zeroblob(32), x'00')", (name,))
    database.close()
    try:
        Memory.open(path).absorb(*_arrays(task))
    except LogCLError as error:
        return f"raised after the commit: {error}"
    return ""


def _command(stdout: str | None, log: str | None = None) -> Failing:
    reported = "holds this task" if log else ""

    def run(path: Path, task: Path, rng: random.Random) -> str:
        options = ["--json"] if rng.random() < 0.5 else []
        if log:
            place = path.with_name("full.csv")
            place.symlink_to(log)
            options += ["--log", str(place)]
        code, _, err = start(path.parent / "said", "absorb", path, task, *options, stdout=stdout).finish()
        # Output that is lost changes the exit code, but the message says that the command itself succeeded.
        expected = (7, "the command itself ended with exit code 0") if stdout else (0, reported)
        wrong = code != expected[0] or expected[1] not in err or "Traceback" in err or "Exception" in err
        return f"exit {code}: {err}" if wrong else ""

    return run


def _unopened_log(path: Path, task: Path, rng: random.Random) -> str:
    """Refused before the work; then the same command without the log adds the task once."""
    log = path.parent / "no" / rng.choice(("a.csv", "a.jsonl"))
    code, _, err = start(path.parent / "said", "absorb", path, task, "--log", log).finish()
    if code != 7 or "cannot be written" not in err:
        return f"exit {code}: {err}"
    wrong = _held(path, _SIZES[0])
    code, _, err = start(path.parent / "said", "absorb", path, task).finish()
    return wrong or (f"exit {code}: {err}" if code else "")


FAILURES: dict[str, Failing] = {
    "a callback raises": _callback,
    "progress raises": _progress,
    "the log is deleted": _log_gone,
    "a stray part": _stray_part,
    "standard output is full": _command("/dev/full"),
    "no standard output": _command(""),
    "the log is full": _command(None, "/dev/full"),
    "a log that cannot be opened": _unopened_log,
}
