"""What commands share: options, progress bars, tables and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from logcl.core.errors import BadSettings, LogCLError
from logcl.core.sizes import ImageSize, parse_size
from logcl.core.text import printable

if TYPE_CHECKING:
    from logcl.core.bars import Bars
    from logcl.core.settings import ImageFit
    from logcl.nn.engines import Engine
    from logcl.streams import Survey


class _Console(Console):
    """Prints every string, also in tables, as one line in which nothing controls the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        """The text of a string, in which names of files and classes may contain anything."""
        line = text.strip("\n")  # empty lines around it are ours
        return super().render_str(text.replace(line, printable(line)) if line else text, **options)


def _console(*, stderr: bool) -> Console:
    """A console that never wraps lines; not on a terminal, it is 240 columns wide."""
    # No markup: names of files and classes may contain brackets.
    console = _Console(stderr=stderr, soft_wrap=True, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 240
    return console


out = _console(stderr=False)
err = _console(stderr=True)

MemoryArgument = Annotated[Path, typer.Argument(metavar="MEMORY", help="The memory file, e.g. pets.logcl.")]
SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A named data set, an .npz file or a folder of class-named folders of images. If a name is "
        "both, write dataset:NAME or ./NAME.",
    ),
]
ShapeOption = Annotated[
    str | None,
    typer.Option(
        "--image-shape",
        metavar="SIZE",
        help="Size of images, e.g. 64, 64x64 or 3x64x64; else they decide.",
    ),
]
FitOption = Annotated[
    Literal["crop", "pad", "stretch"] | None,
    typer.Option(help="How image files of another aspect ratio get that size; by default crop."),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Folder with the official files of named data sets; else LOGCL_DATA and downloads."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for scripts.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, e.g. codec.epochs=50. Repeatable."),
]
BytesOption = Annotated[float | None, typer.Option(help="Average bytes per sample; fractions are allowed.")]
PsnrOption = Annotated[
    float | None,
    typer.Option(metavar="DB", help="Quality of replayed images in dB, e.g. 30, instead of their size."),
]
CodecOption = Annotated[
    str | None,
    typer.Option("--codec", metavar="NAME", help="The codec; by default the best for the first images."),
]
BackboneOption = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        metavar="NAME[=FILE]",
        help="Hold features of a frozen network instead of images: efficientnet-lite0, or a model of timm, "
        "with weights from FILE or timm's cache.",
    ),
]
ThumbnailsOption = Annotated[
    int,
    typer.Option("--thumbnails", metavar="SIDE", help="Keep a small picture beside the features, e.g. 32."),
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
        "--log", metavar="PLACE", help="FILE.csv, FILE.jsonl or TensorBoard folder for losses. Repeatable."
    ),
]


@contextmanager
def chosen_engine(name: Literal["local", "ray"], address: str | None) -> Iterator[Engine]:
    """The engine chosen with `--engine` and `--address`."""
    if name == "ray":
        from logcl.nn.engines.ray import Ray  # an optional dependency, slow to import

        with _results_only(), Ray(address) as cluster:
            yield cluster
        return
    if address is not None:
        raise BadSettings(f"--address {address} is for a Ray cluster; add --engine ray")
    from logcl.nn.engines import Local

    yield Local()


@contextmanager
def _results_only() -> Iterator[None]:
    """Keep standard output for results: Ray prints news of its nodes there, in the middle of JSON."""
    out.file = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        out.file = cast("IO[str]", None)  # standard output again, even if it was replaced meanwhile


@contextmanager
def job(
    state: str | Callable[[], str],
    above: Callable[[], RenderableType] | None = None,
    *,
    quiet: bool = False,
) -> Iterator[Bars]:
    """Progress bars, below what `above` returns, for a long job; Ctrl-C reports the `state` it leaves."""
    from logcl.core.bars import Bars

    with Bars(err, above, quiet=quiet) as bars:
        try:
            yield bars
        except KeyboardInterrupt:
            bars.stop()
            try:
                left = state if isinstance(state, str) else state()
            except LogCLError as error:
                left = f"the file cannot be read ({error})"
            err.print(f"logcl: interrupted; {left}")
            raise typer.Exit(130) from None


def show(as_json: bool, document: Any, *lines: str) -> None:
    """Print the result of a command: lines of text, or a JSON document with `--json`."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        out.print(line)


def print_json(value: Any) -> None:
    """Print a JSON document in ASCII, which any terminal and encoding takes."""
    print(json.dumps(value, indent=2).replace("\x7f", "\\u007f"), file=out.file)


def new_table(title: str | None = None) -> Table:
    """An empty table in the style of all tables."""
    return Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None = None,
    left: Sequence[str] = ("",),
    to: Console = out,
) -> None:
    """Print a table; the first column and those named in `left` are left-aligned, the others right-aligned.

    On a terminal that is too narrow, each row becomes a short paragraph, so that nothing is cut off.
    """
    result = new_table()
    for position, column in enumerate(columns):
        result.add_column(
            column, justify="left" if position == 0 or column in left else "right", no_wrap=True
        )
    for row in rows:
        result.add_row(*row)
    if title:
        to.print(title)
    if sum(max(map(cell_len, cells)) + 2 for cells in zip(columns, *rows, strict=True)) <= to.width:
        to.print(result)
        return
    label = max(map(cell_len, columns), default=0)
    for row in rows:
        to.print(f"{columns[0]} {row[0]}" if row[0].isdigit() else row[0], style="bold")
        for column, cell in zip(columns[1:], row[1:], strict=True):
            if column and cell:
                to.print(f"  {column:<{label}}  {cell}")


def show_survey(
    title: str, survey: Survey, size: ImageSize | None, fit: ImageFit, by: str = "as asked"
) -> None:
    """What the images of a folder are, and what was chosen by their headers, before any is decoded."""
    from logcl.streams.survey import advice, findings

    columns = ["", "found", "chosen"]
    print_table(columns, findings(survey, size, fit, by), title, ["found", "chosen"], err)
    for sentence in advice(survey, size, fit):
        err.print(f"note: {sentence}")


def parse_changes(
    changes: Sequence[str] | None,
    bytes_per_sample: float | None = None,
    psnr: float | None = None,
    codec: str | None = None,
    fit: ImageFit | None = None,
) -> dict[str, Any]:
    """Settings to change, by name: those of `--set NAME=VALUE`, and those that have options of their own."""
    options = {
        "codec.bytes_per_sample": bytes_per_sample, "codec.psnr": psnr, "codec.name": codec, "fit": fit,
    }  # fmt: skip
    parsed: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if bytes_per_sample is not None and psnr is not None:
        raise BadSettings("--bytes-per-sample and --psnr exclude each other; give only one")
    for change in changes or ():
        name, equals, value = change.partition("=")
        if not equals:
            raise BadSettings(f"--set {change} has no value; write --set NAME=VALUE")
        parsed[name.strip()] = value.strip()
    return parsed


def parse_shape(text: str) -> ImageSize:
    """`--image-shape 64`, `64x64` or `3x64x64`."""
    return parse_size(text, "--image-shape")
