"""Figures as inline SVG for a page, and as files for papers."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from logcl.core.files import write_atomically
from logcl.experiments.report.figures.canvas import HIT, INK, Drawing, styled
from logcl.experiments.result import make_folder

_RESOLUTION = 150  # dots per inch
_NOTHING = {"Date": None, "Creator": None, "Format": None, "Type": None}
_INHERITED = {"stroke-linejoin": "round", "stroke-linecap": "butt"}  # matplotlib's own style sheet


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
