"""`logcl presets` and `logcl methods`: what can be set, with values and meanings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any

import typer

from logcl.cli import console

presets = typer.Typer(help="List the presets and show their settings.", no_args_is_help=True)
methods = typer.Typer(help="List the methods and show their options.", no_args_is_help=True)


@presets.command("list")
def list_presets(as_json: console.JsonOption = False) -> None:
    """List the presets."""
    from logcl.memory.presets import PRESETS

    _list("presets", PRESETS.items(), as_json)


@methods.command("list")
def list_methods(as_json: console.JsonOption = False) -> None:
    """List the methods for `logcl run --method`; docs/methods.md names the paper of each."""
    from logcl.methods import METHODS

    _list("methods", [(name, method.summary) for name, method in METHODS.items()], as_json)


@presets.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of `logcl presets list`.")],
    dataset: Annotated[
        str | None, typer.Option(help="Named data set, for its image shape and its column in the paper.")
    ] = None,
    image_shape: console.ShapeOption = None,
    changes: console.SetOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Show every setting of a preset: its name, value and meaning.

    The default image shape is 1x28x28; a size without channels is for colour images.
    """
    from logcl.core.settings import described
    from logcl.memory.presets import preset
    from logcl.memory.settings import override
    from logcl.streams.catalog import named

    default = named(dataset).image_shape if dataset else (1, 28, 28)
    shape = console.parse_shape(image_shape).shape() if image_shape is not None else default
    rows = list(described(override(preset(name, shape, dataset), console.parse_changes(changes))))
    if as_json:
        console.print_json({"preset": name, "dataset": dataset, "settings": _records(rows)})
        return
    images = "x".join(map(str, shape))
    _show(f"preset {name}, images {images}{f' of {dataset}' if dataset else ''}", rows)
    console.out.print(
        "\nTo change one: --set codec.epochs=50, with absorb (a new memory), run and this command."
    )


@methods.command("show")
def show_method(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="One of `logcl methods list`, or a Python file with a method."),
    ],
    as_json: console.JsonOption = False,
) -> None:
    """Show every option of a method: its name, default and meaning."""
    from logcl.core.settings import described
    from logcl.methods import find, options_of

    method = find(name)
    rows = list(described(options_of(name), f"{method.name}."))
    if as_json:
        about = {"method": method.name, "summary": method.summary}
        console.print_json({**about, "options": _records(rows)})
        return
    if not rows:
        console.show(False, None, f"{method.name}: {method.summary}", "This method has no options.")
        return
    _show(f"{method.name}: {method.summary}", rows)
    console.out.print(f"\nTo change one: logcl run digits --method {name} --set {rows[0][0]}=VALUE")


def _list(what: str, summaries: Collection[tuple[str, str]], as_json: bool) -> None:
    records = [{"name": name, "summary": summary} for name, summary in summaries]
    lines = [f"{name:<18} {summary}" for name, summary in summaries]
    console.show(as_json, records, *lines, f"\n`logcl {what} show NAME` lists what can be set.")


def _records(rows: Sequence[tuple[str, Any, str]]) -> list[dict[str, Any]]:
    return [dict(zip(("name", "value", "meaning"), row, strict=True)) for row in rows]


def _show(title: str, rows: Sequence[tuple[str, Any, str]]) -> None:
    """A table in which only meanings are wrapped."""
    table = console.new_table(title)
    for column in ("setting", "value", "meaning"):
        table.add_column(column, no_wrap=column != "meaning")
    for setting, value, meaning in rows:
        if setting not in ("preset", "image_shape"):  # shown in the title
            table.add_row(setting, str(value), meaning)
    console.out.print(table, soft_wrap=False)
