"""`logcl methods`: the methods and the hyperparameters of each."""

from __future__ import annotations

from typing import Annotated

import typer

from logcl.cli.console import JsonOption, out, print_json

app = typer.Typer(help="Methods: list them, show the options of one.", no_args_is_help=True)


@app.command("list")
def list_methods(as_json: JsonOption = False) -> None:
    """List the methods for `logcl run --method`."""
    from logcl.methods import METHODS  # imports torch, which `logcl --help` does not need

    if as_json:
        print_json([{"name": name, "summary": method.summary} for name, method in METHODS.items()])
        return
    for name, method in METHODS.items():
        out.print(f"{name:<18} {method.summary}")
    out.print("\n`logcl methods show NAME` lists the options of a method; docs/methods.md names its paper.")


@app.command("show")
def show_method(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="One of `logcl methods list`, or a Python file with a method."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show every option of a method: its name, default and meaning."""
    from logcl.core.settings import described
    from logcl.methods import find, options_of

    method, defaults = find(name), options_of(name)
    rows = [(f"{method.name}.{option}", value, meaning) for option, value, meaning in described(defaults)]
    if as_json:
        options = [{"name": option, "value": value, "meaning": meaning} for option, value, meaning in rows]
        print_json({"method": method.name, "summary": method.summary, "options": options})
        return
    out.print(f"{method.name}: {method.summary}")
    for option, value, meaning in rows:
        out.print(f"  {option} = {value}\n      {meaning}")
    if rows:
        out.print(f"\nTo change one: logcl run digits --method {name} --set {rows[0][0]}=VALUE")
    else:
        out.print("  This method has no options.")
