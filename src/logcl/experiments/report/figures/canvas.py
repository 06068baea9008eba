"""What all figures share: their look, their marks, and what a figure is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

INK = "#010203"
"""Text, axes and grid: black on paper, and on a page the colour of the text around (see `svg.inline`)."""
HIT = "hit-"
"""Artists whose gid begins so are large, invisible targets for a pointer: on pages only, not in files."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
"""Okabe and Ito's colours for all kinds of sight, less black and yellow, which one of the schemes hides."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""One more than there are colours: 42 methods differ in the pair of both."""
GREY = "#8a8a8a"

Size = Literal["narrow", "medium", "wide"]
WIDTHS: dict[Size, float] = {"narrow": 4.6, "medium": 6.0, "wide": 9.0}
"""In inches: three, two or one beside each other; a narrow figure fits a phone, others are scrolled there."""

_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "figure.facecolor": "none",
    "font.size": 10,
    "grid.alpha": 0.18,
    "grid.color": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "logcl",  # ids that do not change from run to run
    "text.color": INK,
    "text.parse_math": False,  # a class may be called $
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def styled() -> Iterator[None]:
    """Also a decorator: figures made and drawn inside look alike, whatever a user's own style is."""
    with style.context(_STYLE, after_reset=True):
        yield


@dataclass(frozen=True)
class Drawing:
    """A figure with all that is said about it."""

    name: str
    """Of its files and its place on the page: lower case, digits and hyphens."""
    title: str
    alternative: str
    """What the data say, for those who do not see the figure."""
    figure: Figure
    caption: str = ""
    """How to read it."""
    hover: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the gid of an artist: a text for each of its marks, in the order drawn."""
    size: Size = "narrow"
    """How much of a page's width it needs."""


class Box(NamedTuple):
    """A rectangle in the units of the axes."""

    x: float
    y: float
    width: float
    height: float


def sheet(size: Size, height: float) -> Figure:
    """An empty figure, inches high, which makes room for its labels and for legends outside the axes."""
    return Figure(figsize=(WIDTHS[size], height), layout="constrained")


def boxes(axes: Axes, where: Sequence[Box], colours: Sequence[str], gid: str, **look: Any) -> None:
    """Filled rectangles as one artist, a mark each; the axes' limits are left alone."""
    corners = [
        [(b.x, b.y), (b.x + b.width, b.y), (b.x + b.width, b.y + b.height), (b.x, b.y + b.height)]
        for b in where
    ]
    # They lie inside the axes: a clip path on each would double the size of a large map.
    axes.add_collection(
        PolyCollection(corners, facecolors=list(colours), gid=gid, clip_on=False, **look), autolim=False
    )


def on(colour: str) -> str:
    """Black or white, whichever is read more easily on a colour."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    # Where both have the same contrast: (1 + 0.05) / (y + 0.05) = (y + 0.05) / 0.05.
    return "#000000" if luminance > 0.179 else "#ffffff"


def slug(text: str) -> str:
    """A name for files and ids: lower case letters, digits, and hyphens for everything else."""
    kept = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower())
    return "-".join(kept.split()) or "x"


def shortened(text: str, most: int = 16) -> str:
    """At most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def round_ones(numbers: Sequence[int], most: int) -> list[int]:
    """Positions of at most so many of the ascending numbers, for an axis: multiples of 1, 2, 5, 10, …"""
    if len(numbers) <= most:
        return list(range(len(numbers)))
    for step in (digit * 10**power for power in range(18) for digit in (1, 2, 5)):
        found = [k for k, number in enumerate(numbers) if number % step == 0]
        if len(found) <= most:
            return found or [len(numbers) - 1]
    raise AssertionError("numbers have at most 18 digits")


def grown(rows: int, each: float, least: float, most: float, around: float) -> float:
    """A height in inches for so many rows, between two bounds, and what is around them."""
    return min(max(rows * each, least), most) + around
