"""The command line. `logcl --help` lists the commands; each is a thin shell around the library.

Exit codes: 0 done, 1 `verify` found a problem, 2 bad input or settings, 3 bad data files, 4 not a memory,
5 damaged memory, 6 another writer, 7 cannot write, 8 nothing trained yet, 9 the cluster failed,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, TextIO

import typer

from logcl.cli import bench, data, learning, looking, methods, plan, presets, report, run
from logcl.cli.console import err
from logcl.core.errors import CannotWrite, LogCLError, PassedOver
from logcl.core.text import printable
from logcl.memory.file.sqlite import FORMAT

app = typer.Typer(
    help="A memory that never loses a sample, and a classifier that can be retrained from it at any time.",
    epilog="Exit codes: 0 done · 1 problem found by verify · 2 bad input or settings · 3 bad data files · "
    "4 not a memory · 5 damaged memory · 6 another writer · 7 cannot write · 8 nothing trained yet · "
    "9 the cluster failed · 130 interrupted",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (
    learning.absorb,
    plan.plan,
    learning.train,
    learning.predict,
    looking.inspect,
    looking.verify,
    looking.export,
    run.run,
    bench.bench,
    report.report,
):
    app.command()(command)
app.add_typer(presets.app, name="presets", help="Show the presets and what they stand for.")
app.add_typer(methods.app, name="methods", help="Show the methods and their options.")
app.add_typer(data.app, name="data", help="List, fetch and check the named data sets.")


def _show_version(asked: bool) -> None:
    if asked:
        print(f"logcl {version('logcl')}, memory format {FORMAT}")
        raise typer.Exit


@app.callback()
def common(
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, mps or auto; also LOGCL_DEVICE.")
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of all commands."""
    if device is not None:
        os.environ["LOGCL_DEVICE"] = device


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """What LogCL warns of is one sentence on stderr, without a line of its source."""

    usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, PassedOver):
            err.print(f"logcl: {printable(message)}")
        else:
            usual(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():  # puts showwarning back as well
        warnings.simplefilter("always", PassedOver)
        warnings.showwarning = show
        yield


def main() -> None:
    """Run the command line; whatever LogCL refuses becomes one sentence on stderr."""
    try:
        with _plain_warnings():
            app()
    except LogCLError as error:
        print(f"logcl: {printable(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno is None:
            raise
        print(f"logcl: {error.filename or 'a file'} cannot be used ({error.strerror})", file=sys.stderr)
        sys.exit(CannotWrite.exit_code)
