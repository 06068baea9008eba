"""`logcl presets`: which presets there are, and every setting that one stands for."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from logcl.cli.console import JsonOption, SetOption, out, parse_changes, parse_shape, print_json
from logcl.core.settings import described
from logcl.memory.presets import PRESETS, preset
from logcl.memory.settings import Settings, override
from logcl.streams.catalog import named

app = typer.Typer(help="Presets: list them, show what one stands for.", no_args_is_help=True)


@app.command("list")
def list_presets(as_json: JsonOption = False) -> None:
    """Show the presets."""
    if as_json:
        print_json([{"name": name, "summary": summary} for name, summary in PRESETS.items()])
        return
    for name, summary in PRESETS.items():
        out.print(f"{name:<10} {summary}")
    out.print("\nlogcl presets show NAME lists every setting of one.")


@app.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(PRESETS)}.")],
    dataset: Annotated[
        str | None, typer.Option(help="A named data set: the images' shape, and the paper's column.")
    ] = None,
    image_shape: Annotated[
        str | None, typer.Option(metavar="CxHxW", help="Shape of the images, e.g. 3x32x32.")
    ] = None,
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every setting of a preset: its name, its value, what it means. Default: images of 1x28x28."""
    usual = named(dataset).image_shape if dataset else (1, 28, 28)
    shape = parse_shape(image_shape) if image_shape else usual
    settings = override(preset(name, shape, dataset), parse_changes(changes))
    if as_json:
        print_json({"preset": name, "dataset": dataset, "settings": _plain(settings)})
        return
    images = "x".join(map(str, shape))
    table = Table(
        title=f"preset {name}, images {images}{f' of {dataset}' if dataset else ''}",
        title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold",
    )  # fmt: skip
    table.add_column("setting", no_wrap=True)
    table.add_column("value", no_wrap=True)
    table.add_column("meaning")
    for setting in _plain(settings):
        if setting["name"] not in ("preset", "image_shape"):  # the title says them
            table.add_row(setting["name"], str(setting["value"]), setting["meaning"])
    out.print(table, soft_wrap=False)
    out.print("\nTo change one: --set generator.epochs=50, with absorb (a new memory), run and this command.")


def _plain(settings: Settings) -> list[dict[str, Any]]:
    return [
        {"name": name, "value": value, "meaning": meaning} for name, value, meaning in described(settings)
    ]
