"""The real command line in separate processes, forked from one that has already imported everything."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from logcl.streams import open_stream

_IMPORTED = ("logcl.cli.absorb", "logcl.cli.train", "logcl.memory.classifier", "tests.torture.commands")


@dataclass(frozen=True)
class Interrupt:
    """Ctrl-C at the line with this number, counted from 0 from the first line of a function on."""

    function: str
    at: int


@dataclass
class Command:
    """`logcl ARGUMENTS`, running."""

    process: ForkServerProcess
    folder: Path

    def kill(self) -> None:
        """End it with SIGKILL, at once."""
        self.process.kill()
        self.process.join()

    def finish(self) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self.process.join(120)
        if self.process.exitcode is None:
            self.process.kill()
            raise RuntimeError("a command did not end within two minutes")
        out, err = (
            path.read_text() if path.is_file() else ""
            for path in (self.folder / "stdout", self.folder / "stderr")
        )
        return self.process.exitcode, out, err


def start(
    folder: Path, *arguments: object, stdout: str | None = None, interrupt: Interrupt | None = None
) -> Command:
    """Start a command with its output in `folder`; `stdout` is another place, "" for none."""
    folder.mkdir(parents=True, exist_ok=True)
    place = str(folder / "stdout") if stdout is None else stdout
    process = _context().Process(target=_run, args=(list(map(str, arguments)), folder, place, interrupt))
    process.start()
    return Command(process, folder)


def save_tasks(folder: Path, sizes: Sequence[int]) -> list[Path]:
    """Files of digits, all different."""
    folder.mkdir(parents=True, exist_ok=True)
    task = next(iter(open_stream("digits", tasks=1)))
    paths, at = [], 0
    for number, size in enumerate(sizes):
        paths.append(folder / f"task{number}.npz")
        np.savez(paths[-1], x=task.x[at : at + size], y=task.y[at : at + size])
        at += size
    return paths


def _context() -> ForkServerContext:
    os.environ["OMP_NUM_THREADS"] = "1"  # children of one server share two cores
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    return context


def _run(arguments: list[str], folder: Path, stdout: str, interrupt: Interrupt | None) -> None:
    from logcl.__main__ import main as whole_command
    from logcl.cli import main

    for number, place in ((1, stdout), (2, str(folder / "stderr"))):
        if place:
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, number)
    # As Python does when it starts: the streams of the server are those of the test.
    sys.stdout = os.fdopen(1, "w", closefd=False) if stdout else None  # type: ignore[assignment]
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["logcl", *arguments]
    if interrupt is None:
        whole_command()
        return
    tracer = _Tracer(interrupt)
    sys.settrace(tracer)
    try:
        main()
    finally:
        sys.settrace(None)
        (folder / "lines").write_text(str(tracer.lines))


class _Tracer:
    """Sends SIGINT to this process from one line of LogCL, or of contextlib, in which locks are released."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self.lines = -1  # none is counted before the function is entered
        self._watched: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in self._watched:
            place = Path(code.co_filename)
            own = "logcl" in place.parts and place.parts[-2:] != (
                "cli",
                "__init__.py",
            )  # runs after the command
            self._watched[code] = own or place.name == "contextlib.py"
        if not self._watched[code]:
            return None
        if self.lines < 0 and code.co_name == self._interrupt.function:
            self.lines = 0
        if event == "line" and self.lines >= 0:
            self.lines += 1
            if self.lines == self._interrupt.at + 1:
                os.kill(os.getpid(), signal.SIGINT)
        return self
