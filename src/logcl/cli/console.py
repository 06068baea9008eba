"""Shared by all commands: options, progress, tables and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table

from logcl.core.errors import BadSettings

if TYPE_CHECKING:
    from logcl.core.progress import Bars
    from logcl.core.settings import ImageShape
    from logcl.nn.engines import Engine


def _console(*, stderr: bool) -> Console:
    """Lines are never wrapped; without a terminal, tables may be 240 columns wide."""
    # No markup: names of files and classes may have brackets in them.
    console = Console(stderr=stderr, soft_wrap=True, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 240
    return console


out = _console(stderr=False)
err = _console(stderr=True)

MemoryArgument = Annotated[Path, typer.Argument(metavar="MEMORY", help="The memory file, e.g. pets.logcl.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for scripts.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change a setting, e.g. generator.epochs=50. Repeatable."
    ),
]
BytesOption = Annotated[float | None, typer.Option(help="Average bytes per sample; fractions are allowed.")]
PsnrOption = Annotated[
    float | None, typer.Option(metavar="DB", help="Quality of the codes instead of their size, e.g. 30.")
]
EngineOption = Annotated[
    Literal["local", "ray"], typer.Option(help="Where to train: in this process or on a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Address of the Ray cluster, or auto; by default one is started here."
    ),
]
LogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="PLACE",
        help="Log losses to FILE.csv, FILE.jsonl or a TensorBoard folder. Repeatable.",
    ),
]


@contextmanager
def chosen_engine(name: Literal["local", "ray"], address: str | None) -> Iterator[Engine]:
    """The engine that `--engine` and `--address` name, for as long as it is needed."""
    if name == "ray":
        from logcl.nn.engines.ray import Ray  # an extra, and slow to load

        with Ray(address) as cluster:
            yield cluster
        return
    if address is not None:
        raise BadSettings(f"--address {address} names a Ray cluster; add --engine ray")
    from logcl.nn.engines import Local

    yield Local()


@contextmanager
def job(
    what_is_safe: str | Callable[[], str], above: Callable[[], RenderableType] | None = None
) -> Iterator[Bars]:
    """Progress bars around a long job; Ctrl-C ends it with a sentence that says what state is left.

    `above` gives what is shown above the bars.
    """
    from logcl.core.progress import Bars

    with Bars(err, above) as bars:
        try:
            yield bars
        except KeyboardInterrupt:
            bars.stop()
            safe = what_is_safe if isinstance(what_is_safe, str) else what_is_safe()
            err.print(f"logcl: interrupted; {safe}")
            raise typer.Exit(130) from None


def print_json(value: Any) -> None:
    """One JSON document on stdout; control characters in names are escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    print(re.sub(r"[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """A plain table; the first column and those without a name are left, the others right aligned.

    On a terminal that is too narrow, each row becomes a short paragraph: nothing is cut off.
    """
    result = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for position, column in enumerate(columns):
        result.add_column(column, justify="left" if position == 0 or not column else "right", no_wrap=True)
    for row in rows:
        result.add_row(*row)
    if title:
        out.print(title)
    if sum(max(map(cell_len, cells)) + 2 for cells in zip(columns, *rows, strict=True)) <= out.width:
        out.print(result)
        return
    label = max(map(cell_len, columns), default=0)
    for row in rows:
        out.print(f"{columns[0]} {row[0]}" if row[0].isdigit() else row[0], style="bold")
        for column, cell in zip(columns[1:], row[1:], strict=True):
            if column and cell:
                out.print(f"  {column:<{label}}  {cell}")


def parse_changes(
    changes: Sequence[str] | None,
    bytes_per_sample: float | None = None,
    psnr: float | None = None,
) -> dict[str, Any]:
    """`--set name=value` options as a mapping, with the options that set the size or quality of a code."""
    rates = {"generator.bytes_per_sample": bytes_per_sample, "generator.psnr": psnr}
    parsed: dict[str, Any] = {name: value for name, value in rates.items() if value is not None}
    if len(parsed) > 1:
        raise BadSettings("--bytes-per-sample and --psnr contradict each other; give only one")
    for change in changes or ():
        name, equals, value = change.partition("=")
        if not equals:
            raise BadSettings(f"--set {change} has no value; write --set NAME=VALUE")
        parsed[name.strip()] = value.strip()
    return parsed


def parse_shape(text: str) -> ImageShape:
    """`--image-shape 3x32x32` as channels, height, width."""
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        raise BadSettings(f"--image-shape {text} is not CHANNELSxHEIGHTxWIDTH; write e.g. 3x32x32")
    channels, height, width = map(int, parts)
    return channels, height, width
