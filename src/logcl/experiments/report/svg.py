"""Figures as inline SVG for a page, and as files for papers."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from logcl.core.files import write_atomically
from logcl.experiments.report.figures.canvas import HIT, INK, Drawing, styled
from logcl.experiments.result import make_folder

_RESOLUTION = 150  # dots per inch
_NOTHING = {"Date": None, "Creator": None, "Format": None, "Type": None}
_MARKS = ("path", "use")
_INHERITED = {"stroke-linejoin": "round", "stroke-linecap": "butt"}  # matplotlib's own style sheet


def inline(drawing: Drawing, prefix: str) -> str:
    """An <svg> element for a page: as wide as its container, in the page's font and text colour.

    Its ids start with `prefix`, so that two figures do not share clip paths. Marks have hover texts.
    """
    with styled(), warnings.catch_warnings():
        # The font used for layout here may lack letters that the page's font has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        root = ElementTree.fromstring(_svg(drawing, transparent=True))
    _plain_names(root)
    for gid, texts in drawing.hover.items():
        _explain(root, gid, texts)
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
            text = _svg(drawing, transparent=False).replace(INK, "#000000")
        for target in targets:
            target.set_visible(True)
        for suffix, content in (("png", picture.getvalue()), ("svg", text.encode())):
            path = folder / f"{drawing.name}.{suffix}"
            write_atomically(path, content)
            written.append(path)
    return written


def _svg(drawing: Drawing, *, transparent: bool) -> str:
    stream = io.StringIO()
    background = "none" if transparent else "white"
    drawing.figure.savefig(stream, format="svg", facecolor=background, metadata=_NOTHING)
    return stream.getvalue()


def _plain_names(root: Element) -> None:
    """Remove XML namespaces, which an <svg> inside HTML does not need."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name in [name for name in element.attrib if "}" in name]:
            element.attrib[name.rpartition("}")[2]] = element.attrib.pop(name)


def _explain(root: Element, gid: str, texts: Sequence[str]) -> None:
    """Give each mark of an artist its hover text, a <title>."""
    group = next((element for element in root.iter("g") if element.get("id") == gid), None)
    marks = [] if group is None else list(_marks(group))
    if len(marks) != len(texts):
        raise ValueError(f"{gid} has {len(marks)} marks for {len(texts)} texts")
    for mark, text in zip(marks, texts, strict=True):
        title = Element("title")
        title.text = text
        mark.append(title)


def _marks(group: Element) -> Iterator[Element]:
    """The marks below a group, in the order drawn, without definitions."""
    for child in group:
        if child.tag in _MARKS:
            yield child
        elif child.tag != "defs":
            yield from _marks(child)


def _own_ids(root: Element, prefix: str) -> None:
    """Keep only ids that are referenced, with a prefix that no other figure has."""
    reference = re.compile(r"#([\w.-]+)\)?$")
    used = set()
    for element in root.iter():
        for name in ("href", "clip-path"):
            if found := reference.search(element.get(name, "")):
                used.add(found[1])
                element.set(name, element.attrib[name].replace("#", f"#{prefix}-"))
        if found := re.search(r"url\(#([\w.-]+)\)", element.get("style", "")):
            used.add(found[1])
            element.set("style", element.attrib["style"].replace("url(#", f"url(#{prefix}-"))
    for element in root.iter():
        if (own := element.attrib.pop("id", "")) in used:
            element.set("id", f"{prefix}-{own}")


def _compact(element: Element) -> None:
    """Two decimals, no line breaks, no fonts except monospace."""
    element.tail = None
    if element.tag not in ("text", "tspan", "title"):
        element.text = None
    for name in ("d", "x", "y", "width", "height", "transform"):
        if name in element.attrib:
            element.set(name, _rounded(element.attrib[name]))
    if element.get("transform", "").startswith("rotate(0 "):
        del element.attrib["transform"]
    if "font-family" in element.get("style", ""):
        mono = "font-family: monospace;" if "Mono" in element.attrib["style"] else ""
        element.set("style", re.sub(r"font-family:[^;]*;?", mono, element.attrib["style"]))


def _rounded(text: str) -> str:
    shorter = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), text)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", re.sub(r"-0(?![.\d])", "0", shorter)).strip()
