"""`logcl presets`: the presets and the settings of each."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from logcl.cli.console import JsonOption, SetOption, out, parse_changes, parse_shape, print_json

app = typer.Typer(help="List the presets and show their settings.", no_args_is_help=True)


@app.command("list")
def list_presets(as_json: JsonOption = False) -> None:
    """List the presets."""
    from logcl.memory.presets import PRESETS

    if as_json:
        print_json([{"name": name, "summary": summary} for name, summary in PRESETS.items()])
        return
    for name, summary in PRESETS.items():
        out.print(f"{name:<10} {summary}")
    out.print("\n`logcl presets show NAME` lists the settings of a preset.")


@app.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of `logcl presets list`.")],
    dataset: Annotated[
        str | None, typer.Option(help="Named data set, for its image shape and its column in the paper.")
    ] = None,
    image_shape: Annotated[
        str | None, typer.Option(metavar="CxHxW", help="Shape of the images, e.g. 3x32x32.")
    ] = None,
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every setting of a preset: its name, value and meaning. The default image shape is 1x28x28."""
    from logcl.core.settings import described
    from logcl.memory.presets import preset
    from logcl.memory.settings import override
    from logcl.streams.catalog import named

    default = named(dataset).image_shape if dataset else (1, 28, 28)
    shape = parse_shape(image_shape) if image_shape else default
    settings = list(described(override(preset(name, shape, dataset), parse_changes(changes))))
    if as_json:
        rows = [{"name": setting, "value": value, "meaning": meaning} for setting, value, meaning in settings]
        print_json({"preset": name, "dataset": dataset, "settings": rows})
        return
    images = "x".join(map(str, shape))
    table = Table(
        title=f"preset {name}, images {images}{f' of {dataset}' if dataset else ''}",
        title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold",
    )  # fmt: skip
    table.add_column("setting", no_wrap=True)
    table.add_column("value", no_wrap=True)
    table.add_column("meaning")
    for setting, value, meaning in settings:
        if setting not in ("preset", "image_shape"):  # shown in the title
            table.add_row(setting, str(value), meaning)
    out.print(table, soft_wrap=False)
    out.print("\nTo change one: --set codec.epochs=50, with absorb (a new memory), run and this command.")
