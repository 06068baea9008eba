"""Omniglot: 1,623 characters of 50 alphabets, each drawn by 20 people; from zip files or extracted folders.

Each 105x105 drawing, black on white, becomes 28x28 and white on black like MNIST. Drawers 1 to 15 are for
training, 16 to 20 for testing; the last number in the file name is the drawer. Repacked archives are common,
so their content is checked (alphabets, characters, drawers, size of every image) instead of a checksum.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import PIL
from PIL import Image

from logcl.core.errors import DataError
from logcl.core.progress import Progress
from logcl.streams.archives import read_member, reading, zip_members
from logcl.streams.cache import Blueprint, Decoded, cached, fingerprint
from logcl.streams.pixels import opened_image
from logcl.streams.sources import SOURCES, Files, find
from logcl.streams.stream import Pixels, Rows, Task

# Set → alphabets, characters.
SETS = {"images_background": (30, 964), "images_evaluation": (20, 659)}
DRAWERS = 20
TRAIN_DRAWERS = 15
_SIDE = 28
_OFFICIAL_SIZE = (105, 105)
_LARGEST_FILE = 1 << 16  # bytes; the official ones have up to 522
_CHARACTERS_OF_100_TASKS = 300
_REMEDY = SOURCES["omniglot"].remedy
_DRAWING = re.compile(r"(?:.*/)?(images_[a-z]+)/([^/]+)/(character\d+)/\d+_(\d\d)\.png")


class Drawing(NamedTuple):
    """One image file; sorted by alphabet, character and drawer."""

    alphabet: str
    set_name: str
    character: str
    drawer: int
    member: str
    """Name in the archive, or path relative to the folder."""


def find_omniglot(folder: Path) -> Files | None:
    """The zip files or extracted folders of both sets in a folder; None if one is missing."""
    places = {}
    for name in SETS:
        if (folder / f"{name}.zip").is_file():
            places[name] = folder / f"{name}.zip"
        elif (folder / name).is_dir():
            places[name] = folder / name
    return places if len(places) == len(SETS) else None


def load_omniglot(data_dir: Path | None, progress: Progress, *, rebuild: bool = False) -> Decoded:
    """All drawings; the classes are the 50 alphabets in sorted order."""
    data = _load_characters(data_dir, progress, rebuild)
    alphabet_of = [name.split("/")[1] for name in data.classes]
    alphabets, positions = np.unique(alphabet_of, return_inverse=True)
    parts = [Task(p.x, positions[p.y].astype(np.int64)) for p in (data.train, data.test) if p is not None]
    return Decoded(tuple(str(a) for a in alphabets), *parts)


def load_omniglot_100(data_dir: Path | None, progress: Progress, *, rebuild: bool = False) -> Decoded:
    """300 characters as classes: the first ten alphabets of the background set."""
    data = _load_characters(data_dir, progress, rebuild)
    background = [k for k, name in enumerate(data.classes) if name.startswith("images_background/")]
    chosen = np.array(background[:_CHARACTERS_OF_100_TASKS])
    classes = tuple(data.classes[k].split("/", 1)[1] for k in chosen)
    parts = [_only(p, chosen) for p in (data.train, data.test) if p is not None]
    return Decoded(classes, *parts)


def _only(part: Task, chosen: Rows) -> Task:
    """The samples of the `chosen` classes, ascending, renumbered from 0."""
    rows = np.flatnonzero(np.isin(part.y, chosen))
    return Task(part.x[rows], np.searchsorted(chosen, part.y[rows]).astype(np.int64))


def _load_characters(data_dir: Path | None, progress: Progress, rebuild: bool) -> Decoded:
    """All drawings; the classes are the 1,623 characters, named set/alphabet/character, by alphabet."""
    files = find(SOURCES["omniglot"], data_dir, find_omniglot)
    sources = [path for place in files.values() for path in (_tree(place) if place.is_dir() else [place])]

    def plan() -> Blueprint:
        drawings = sorted(d for name, place in files.items() for d in list_drawings(name, place))
        characters = list(dict.fromkeys(f"{d.set_name}/{d.alphabet}/{d.character}" for d in drawings))
        split = {
            "train": [d for d in drawings if d.drawer <= TRAIN_DRAWERS],
            "test": [d for d in drawings if d.drawer > TRAIN_DRAWERS],
        }

        def fill(parts: Mapping[str, Task]) -> None:
            with progress.track("decoding omniglot", len(drawings)) as advance, ExitStack() as stack:
                read = {name: stack.enter_context(_reader(place)) for name, place in files.items()}
                for name, part in parts.items():
                    part.y[:] = np.repeat(np.arange(len(characters)), len(part.y) // len(characters))
                    for row, drawing in enumerate(split[name]):
                        part.x[row, 0] = read[drawing.set_name](drawing.member)
                        advance()

        sizes = {name: len(rows) for name, rows in split.items()}
        return Blueprint(tuple(characters), (1, _SIDE, _SIDE), sizes, fill)

    mark = fingerprint(sources, PIL.__version__)
    return cached("omniglot", mark, plan, rebuild=rebuild)


def list_drawings(set_name: str, place: Path) -> list[Drawing]:
    """The drawings of one set; a DataError unless its alphabets, characters and drawers are complete."""
    with reading(place, _REMEDY):
        if place.is_dir():
            names = [path.relative_to(place.parent).as_posix() for path in _tree(place)]
        else:
            with zipfile.ZipFile(place) as archive:
                names = [member.filename for member in zip_members(archive, place, _REMEDY)]
    drawings = []
    for name in names:
        if not name.endswith(".png") or "/." in name or "__MACOSX" in name:
            continue
        match = _DRAWING.fullmatch(name)
        if match is None or match[1] != set_name:
            raise DataError(f"{place} holds {name!r}, which is not a drawing of {set_name}; {_REMEDY}")
        drawings.append(Drawing(match[2], set_name, match[3], int(match[4]), name))
    alphabets, characters = SETS[set_name]
    found = {(d.alphabet, d.character) for d in drawings}
    complete = {(*character, drawer) for character in found for drawer in range(1, DRAWERS + 1)}
    if (
        len({alphabet for alphabet, _ in found}) != alphabets
        or len(found) != characters
        or len(drawings) != len(complete)
        or {(d.alphabet, d.character, d.drawer) for d in drawings} != complete
    ):
        raise DataError(
            f"{place} holds {len(drawings):,} drawings of {len(found)} characters, not {DRAWERS} of each "
            f"of {characters}; {_REMEDY}"
        )
    return drawings


def _tree(folder: Path) -> list[Path]:
    """The drawings in an extracted set, sorted."""
    return sorted(folder.glob("*/*/*.png"))


@contextmanager
def _reader(place: Path) -> Iterator[Callable[[str], Pixels]]:
    """A function that reads a drawing by name as (28, 28) while the set is open."""
    if place.is_dir():
        yield lambda member: _decode(place.parent / member, str(place.parent / member))
        return
    with reading(place, _REMEDY):
        archive = zipfile.ZipFile(place)

    def read(member: str) -> Pixels:
        # Not around the yield, where errors of the other set would be caught as well.
        with reading(place, _REMEDY):
            content = read_member(archive, archive.getinfo(member), _LARGEST_FILE)
        return _decode(io.BytesIO(content), f"{place} ({member})")

    with archive:
        yield read


def _decode(file: Path | IO[bytes], name: str) -> Pixels:
    with opened_image(file, name) as image:
        if image.size != _OFFICIAL_SIZE:  # known from the header, so a decompression bomb is never decoded
            raise DataError(f"{name} is {image.width}x{image.height} instead of 105x105; {_REMEDY}")
        small = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        return 255 - np.asarray(small, np.uint8)
