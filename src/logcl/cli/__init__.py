"""The command line; the module of a command is imported when the command is invoked."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from logcl.core.errors import CannotWrite, LogCLError, PassedOver
from logcl.core.text import printable

COMMANDS = {
    "absorb": "Add labelled images to a memory, created if absent; the files are not needed afterwards.",
    "plan": "Show what absorbing a task would retrain, or forecast what a memory of any size would take.",
    "train": "Retrain the global model from replay and store it in the memory file.",
    "predict": "Classify images with the global model.",
    "inspect": "Show levels, bytes, generations, fit errors and the binary counter of a memory.",
    "verify": "Check every digest and invariant; exit 0 only if all hold or the intact part was salvaged.",
    "export": "Write the replayed samples, in sample order: OUT.npz with x and y, or OUT/CLASS/INDEX.png.",
    "run": "Learn a stream task by task and show accuracy, forgetting, bytes kept and seconds.",
    "bench": "Run a grid of experiments and show its tables.",
    "report": "Compare results on one self-contained page: tables, curves, the binary counter, replay.",
    "presets": "List the presets and show their settings.",
    "methods": "List the methods and show their options.",
    "data": "List, download and check the named data sets.",
}
"""Command → summary."""
_MODULES = {"presets": "settings", "methods": "settings"}
"""Of commands whose module has another name. It holds a function, or a group of subcommands, of this name."""


class _LazyGroup(TyperGroup):
    """Lists commands from `COMMANDS` and imports only the one that is invoked."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name, command and arguments; also used by shell completion."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and load(name or ""), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C outside a `job` is reported here."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(_failed("interrupted", 130)) from None


def load(name: str) -> Any:
    """Import a command."""
    found = getattr(import_module(f"logcl.cli.{_MODULES.get(name, name)}"), name)
    parent = typer.Typer()
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name, help=COMMANDS[name], no_args_is_help=True)
    else:
        parent.command(name)(found)
    return typer.main.get_group(parent).commands[name]


app = typer.Typer(
    cls=_LazyGroup,
    help="A memory that never loses a sample, and a classifier that can be retrained from it at any time.",
    epilog="Exit codes: 0 done · 1 problem found by verify · 2 bad input or settings · 3 bad data files · "
    "4 not a memory · 5 damaged memory · 6 another writer · 7 cannot write · 8 nothing trained yet · "
    "9 the cluster failed · 130 interrupted",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name, _summary in COMMANDS.items():
    app.command(_name, help=_summary)(lambda: None)  # a placeholder for lists of commands


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
        if not issubclass(category, PassedOver):
            usual(message, category, *place, **more)
            return
        from logcl.cli.console import err

        err.print(f"logcl: {printable(message)}")

    try:
        with warnings.catch_warnings():  # also restores showwarning
            warnings.simplefilter("always", PassedOver)
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
