"""What all figures share: style, marks, the type `Drawing`, and how it becomes SVG or PNG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from logcl.core.files import write_atomically
from logcl.experiments.result import make_folder

INK = "#010203"
"""Text, axes and grid: black in files, the colour of the surrounding text on a page (see `inline`)."""
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
_RESOLUTION = 150  # dots per inch
_NOTHING = {"Date": None, "Creator": None, "Format": None, "Type": None}
_INHERITED = {"stroke-linejoin": "round", "stroke-linecap": "butt"}  # matplotlib's own style sheet


@contextmanager
def styled() -> Iterator[None]:
    """Context or decorator: figures created and drawn inside look alike, whatever the user's own style."""
    with style.context("logcl.experiments.report.figure", after_reset=True):
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
    if corners:
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


def thinned(numbers: Sequence[int], most: int = 100) -> list[int]:
    """At most `most` of the numbers, evenly spaced, including the first and the last."""
    kept = np.linspace(0, len(numbers) - 1, min(len(numbers), most)).round().astype(int)
    return [numbers[k] for k in kept]


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


def inline(drawing: Drawing, prefix: str) -> str:
    """An <svg> element for a page: as wide as its container, in the page's font and text colour.

    Its ids start with `prefix`, so that two figures do not share clip paths. Marks have hover texts.
    """
    with styled(), warnings.catch_warnings():
        # The font used for layout here may lack letters that the page's font has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        text = _svg(drawing, "none")
    # An <svg> inside HTML needs no namespaces; only texts, which are escaped, come from users.
    root = ElementTree.fromstring(re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace(" xlink:", " "))
    _explain(root, drawing.hover)
    _own_ids(root, prefix)
    for element in root.iter():
        _compact(element)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    for child in [child for child in root if child.find("style") is not None]:
        root.remove(child)
    root.attrib.update({"role": "img", "aria-label": drawing.alternative, **_INHERITED})
    return ElementTree.tostring(root, encoding="unicode").replace(INK, "currentColor")


def save(drawings: Sequence[Drawing], folder: Path) -> list[Path]:
    """Write each figure as NAME.png (150 dpi) and NAME.svg, black on white; returns the files."""
    make_folder(folder)
    written = []
    for drawing in drawings:
        targets = drawing.figure.findobj(lambda artist: (artist.get_gid() or "").startswith(HIT))
        for target in targets:
            target.set_visible(False)
        with styled():
            picture = io.BytesIO()
            drawing.figure.savefig(picture, format="png", dpi=_RESOLUTION, facecolor="white")
            text = _svg(drawing, "white").replace(INK, "#000000")
        for target in targets:
            target.set_visible(True)
        for suffix, content in (("png", picture.getvalue()), ("svg", text.encode())):
            written.append(folder / f"{drawing.name}.{suffix}")
            write_atomically(written[-1], content)
    return written


def _svg(drawing: Drawing, background: str) -> str:
    stream = io.StringIO()
    drawing.figure.savefig(stream, format="svg", facecolor=background, metadata=_NOTHING)
    return stream.getvalue()


def _explain(root: Element, hover: Mapping[str, Sequence[str]]) -> None:
    """Give each mark of an artist its hover text, a <title>."""
    groups = {group.get("id"): group for group in root.iter("g")}
    for gid, texts in hover.items():
        definitions = {part for defs in groups[gid].iter("defs") for part in defs.iter()}
        drawn = [part for part in groups[gid].iter() if part not in definitions]
        marks = [part for part in drawn if part.tag in ("path", "use")]
        for mark, text in zip(marks, texts, strict=True):
            ElementTree.SubElement(mark, "title").text = text


def _own_ids(root: Element, prefix: str) -> None:
    """Keep only ids that are referenced, with a prefix that no other figure has."""
    reference = re.compile(r"(?:^|(?<=url\())#([\w.-]+)")
    used = set()
    for element in root.iter():
        for name in element.attrib.keys() & {"href", "clip-path", "style"}:
            used.update(reference.findall(element.attrib[name]))
            element.set(name, reference.sub(rf"#{prefix}-\1", element.attrib[name]))
    for element in root.iter():
        if (own := element.attrib.pop("id", "")) in used:
            element.set("id", f"{prefix}-{own}")


def _compact(element: Element) -> None:
    """Two decimals, no line breaks, no fonts except monospace."""
    element.tail = None
    if element.tag not in ("text", "tspan", "title"):
        element.text = None
    for name in element.attrib.keys() & {"d", "x", "y", "width", "height", "transform"}:
        text = re.sub(r"-?\d+\.\d+", lambda found: f"{round(float(found[0]), 2):g}", element.attrib[name])
        text = re.sub(r"-0(?![.\d])", "0", text)
        element.set(name, re.sub(r"\s*([A-Za-z])\s*", r"\1", text).strip())
    if element.get("transform", "").startswith("rotate(0 "):
        del element.attrib["transform"]
    if "font-family" in element.get("style", ""):
        mono = "font-family: monospace;" if "Mono" in element.attrib["style"] else ""
        element.set("style", re.sub(r"font-family:[^;]*;?", mono, element.attrib["style"]))
