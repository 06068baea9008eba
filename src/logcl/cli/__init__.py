"""The command line. What is slow to import, torch above all, is imported inside of commands."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from logcl.cli.console import err
from logcl.core.errors import CannotWrite, LogCLError, LogCLWarning
from logcl.core.text import printable

_WITH_MEMORY = ("absorb", "plan", "train", "predict", "inspect", "verify", "export")
COMMANDS = ("preview", *_WITH_MEMORY, "run", "bench", "report", "presets", "methods", "data")
_MODULES = {"presets": "settings", "methods": "settings"}  # the others have the names of their commands

_UsageError: Any = typer.BadParameter.__base__  # of click, or of the copy of it in typer


class _Group(TyperGroup):
    """Imports a command when it is needed: to run it, or for the list of all commands."""

    def get_command(self, ctx: Any, name: str) -> Any:
        """Replace the placeholder of a command by the function, or the group, of that name."""
        if super().get_command(ctx, name) is None:
            return None
        found = getattr(import_module(f"logcl.cli.{_MODULES.get(name, name)}"), name)
        parent = typer.Typer()
        parent.add_typer(found, name=name) if isinstance(found, typer.Typer) else parent.command(name)(found)
        return typer.main.get_group(parent).commands[name]

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Parse the options before the command."""
        with _escaped():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C outside a `job` is reported here."""
        try:
            with _escaped():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(_failed("interrupted", 130)) from None


@contextmanager
def _escaped() -> Iterator[None]:
    """Escape usage errors: they quote arguments, to which a shell may have expanded * with any file names."""
    try:
        yield
    except _UsageError as error:
        error.message = printable(error.message)
        raise


app = typer.Typer(
    cls=_Group,
    help="A memory that never loses a sample, and a classifier that can be retrained from it at any time.",
    epilog="Exit codes: 0 done · 1 problem found by verify · 2 bad input or settings · 3 bad data files · "
    "4 not a memory · 5 damaged memory · 6 another writer · 7 cannot write · 8 nothing trained yet · "
    "9 the cluster failed · 130 interrupted",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name in COMMANDS:
    app.command(_name)(lambda: None)


def _show_version(show: bool) -> None:
    if show:
        from logcl.memory.file.sqlite import FORMAT

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
    """Options common to all commands."""
    if device is not None:
        os.environ["LOGCL_DEVICE"] = device


def main() -> None:
    """Run the command line; a LogCLError becomes one sentence on stderr and an exit code."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        """Print LogCL's own warnings as one sentence, without a source line."""
        if issubclass(category, LogCLWarning):
            err.print(f"logcl: {message}")
        else:
            usual(printable(message), category, *place, **more)

    try:
        with warnings.catch_warnings():  # also restores showwarning
            warnings.simplefilter("always", LogCLWarning)
            warnings.showwarning = show
            app(prog_name="logcl")  # also as `python -m logcl`
    except LogCLError as error:
        sys.exit(_failed(str(error), error.exit_code))
    except OSError as error:
        if error.errno is None:
            raise
        place = f"{error.filename or 'a file'} cannot be used ({error.strerror})"
        sys.exit(_failed(f"{place}; check its path and permissions", CannotWrite.exit_code))


def _failed(message: str, exit_code: int) -> int:
    print(f"logcl: {printable(message)}", file=sys.stderr)
    return exit_code
