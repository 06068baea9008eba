"""What all figures share: style, marks, and the type `Drawing`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

INK = "#010203"
"""Text, axes and grid: black in files, the colour of the surrounding text on a page (see `svg.inline`)."""
HIT = "hit-"
"""Prefix of the gid of large, invisible hover targets: on pages only, not in files."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
"""Okabe and Ito's colours, safe for colour blindness, without black and yellow, which vanish on dark or light
backgrounds."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""One more than there are colours, so that 42 methods differ in colour or marker."""
GREY = "#8a8a8a"

Box = tuple[float, float, float, float]
"""x, y, width and height in data coordinates."""
Size = Literal["narrow", "medium", "wide"]
WIDTHS: dict[Size, float] = {"narrow": 4.6, "medium": 6.0, "wide": 9.0}
"""In inches. A narrow figure fits a phone; the others scroll there."""

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
    "svg.hashsalt": "logcl",  # reproducible ids
    "text.color": INK,
    "text.parse_math": False,  # class names may contain $
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def styled() -> Iterator[None]:
    """Context or decorator: figures created and drawn inside look alike, whatever the user's own style."""
    with style.context(_STYLE, after_reset=True):
        yield


@dataclass(frozen=True)
class Drawing:
    """A figure with its texts."""

    name: str
    """Base name of its files: lower-case letters, digits and hyphens."""
    title: str
    alternative: str
    """Alternative text: what the data show."""
    figure: Figure
    caption: str = ""
    """How to read it."""
    hover: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Hover texts by the gid of an artist: one per mark, in the order drawn."""
    size: Size = "narrow"
    """Share of the page width."""


def sheet(size: Size, height: float) -> Figure:
    """An empty figure, `height` inches high, with a layout that makes room for labels and legends."""
    return Figure(figsize=(WIDTHS[size], height), layout="constrained")


def boxes(axes: Axes, where: Iterable[Box], colours: Sequence[str], gid: str, **look: Any) -> None:
    """Filled rectangles as one artist, one mark each; does not change the limits of the axes."""
    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in where]
    # All lie inside the axes; a clip path on each would double the size of a large map.
    marks = PolyCollection(corners, facecolors=list(colours), gid=gid, clip_on=False, **look)
    axes.add_collection(marks, autolim=False)


def colour(number: int) -> str:
    """The colour of a line or row."""
    return COLOURS[number % len(COLOURS)]


def on(colour: str) -> str:
    """Black or white, whichever has more contrast on a colour."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    # Both have the same contrast where (1 + 0.05) / (y + 0.05) = (y + 0.05) / 0.05.
    return "#000000" if luminance > 0.179 else "#ffffff"


def slug(text: str) -> str:
    """A name for files and ids: lower-case letters and digits, hyphens for everything else."""
    kept = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower())
    return "-".join(kept.split()) or "x"


def shortened(text: str, most: int = 16) -> str:
    """At most `most` characters, with an ellipsis if some are cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def round_ones(numbers: Sequence[int], most: int) -> list[int]:
    """Positions of at most `most` of the ascending numbers, for axis labels: multiples of 1, 2, 5, 10, …"""
    if len(numbers) <= most:
        return list(range(len(numbers)))
    for step in (digit * 10**power for power in range(18) for digit in (1, 2, 5)):
        found = [k for k, number in enumerate(numbers) if number % step == 0]
        if len(found) <= most:
            return found or [len(numbers) - 1]
    raise AssertionError("numbers have at most 18 digits")


def grown(rows: int, each: float, least: float, most: float, around: float) -> float:
    """Height in inches of a figure: `each` per row, between two bounds, plus what surrounds the rows."""
    return min(max(rows * each, least), most) + around
