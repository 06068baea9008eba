"""Omniglot: 1,623 characters of 50 alphabets, each drawn by 20 people; from zip files or extracted folders.

Each 105x105 drawing, black on white, becomes 28x28 and white on black like MNIST. Drawers 1 to 15 are for
training, 16 to 20 for testing; the last number in the file name is the drawer. Repacked archives are common,
so their content is checked (alphabets, characters, drawers, size of every image) instead of a checksum.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from PIL import Image

from logcl.core.errors import DataError
from logcl.core.progress import Advance, Progress
from logcl.streams.archives import members
from logcl.streams.cache import Blueprint, Decoded, blueprint_of
from logcl.streams.pixels import opened_image
from logcl.streams.sources import SOURCES, Files
from logcl.streams.stream import Pixels, Task

# Set → alphabets, characters.
SETS = {"images_background": (30, 964), "images_evaluation": (20, 659)}
DRAWERS = 20
TRAIN_DRAWERS = 15
_SIDE = 28
_OFFICIAL_SIZE = (105, 105)
_LARGEST_FILE = 1 << 16  # bytes; the official ones have up to 522
_CHARACTERS_OF_100_TASKS = 300
_REMEDY = SOURCES["omniglot"].remedy
_IMAGE = r"(?!.*(/\.|__MACOSX)).*\.png"
_DRAWING = re.compile(r"(?:.*/)?(images_[a-z]+)/([^/]+)/(character\d+)/\d+_(\d\d)\.png")

Drawing = tuple[str, str, str, int]
"""Alphabet, set, character, drawer."""


def plan_omniglot(files: Files, progress: Progress) -> Blueprint:
    """All drawings; the classes are the 1,623 characters, named set/alphabet/character, by alphabet."""
    drawings: dict[Drawing, Pixels] = {}
    total = DRAWERS * sum(characters for _, characters in SETS.values())
    with progress.track("decoding omniglot", total) as advance:
        for set_name, place in files.items():
            drawings |= _read_set(set_name, place, advance)
    keys = sorted(drawings)
    classes = tuple(f"{set_name}/{alphabet}/{character}" for alphabet, set_name, character, _ in keys)
    x = np.stack([drawings[key] for key in keys]).reshape(-1, DRAWERS, 1, _SIDE, _SIDE)
    parts = {"train": x[:, :TRAIN_DRAWERS], "test": x[:, TRAIN_DRAWERS:]}
    return blueprint_of(
        classes[::DRAWERS],
        **{
            name: (part.reshape(-1, 1, _SIDE, _SIDE), np.repeat(np.arange(len(part)), part.shape[1]))
            for name, part in parts.items()
        },
    )


def by_alphabet(data: Decoded) -> Decoded:
    """All drawings; the classes are the 50 alphabets in sorted order."""
    alphabet_of = [name.split("/")[1] for name in data.classes]
    alphabets, positions = np.unique(alphabet_of, return_inverse=True)
    parts = [Task(p.x, positions[p.y].astype(np.int64)) for p in (data.train, data.test) if p is not None]
    return Decoded(tuple(str(a) for a in alphabets), *parts)


def first_characters(data: Decoded) -> Decoded:
    """300 characters as classes: the first ten alphabets of the background set."""
    background = [k for k, name in enumerate(data.classes) if name.startswith("images_background/")]
    chosen = np.array(background[:_CHARACTERS_OF_100_TASKS])
    parts = []
    for part in (data.train, data.test):
        if part is not None:
            rows = np.flatnonzero(np.isin(part.y, chosen))
            parts.append(Task(part.x[rows], np.searchsorted(chosen, part.y[rows]).astype(np.int64)))
    return Decoded(tuple(data.classes[k].split("/", 1)[1] for k in chosen), *parts)


def _read_set(set_name: str, place: Path, advance: Advance) -> dict[Drawing, Pixels]:
    """The drawings (28, 28) of one set; an error unless alphabets, characters and drawers are complete."""
    drawings: dict[Drawing, Pixels] = {}
    for name, content in members(place, _IMAGE, _LARGEST_FILE, _REMEDY):
        match = _DRAWING.fullmatch(name)
        if match is None or match[1] != set_name:
            raise DataError(f"{place} holds {name!r}, which is not a drawing of {set_name}; {_REMEDY}")
        drawing = match[2], set_name, match[3], int(match[4])
        if drawing in drawings:
            raise DataError(f"{place} holds the drawing {name!r} twice; {_REMEDY}")
        drawings[drawing] = _decode(content, f"{place} ({name})")
        advance()
    alphabets, characters = SETS[set_name]
    found = {drawing[:3] for drawing in drawings}
    complete = {(*character, drawer) for character in found for drawer in range(1, DRAWERS + 1)}
    if (len({a for a, *_ in found}), len(found)) != (alphabets, characters) or drawings.keys() != complete:
        raise DataError(
            f"{place} holds {len(drawings):,} drawings of {len(found)} characters, not {DRAWERS} of each "
            f"of {characters}; {_REMEDY}"
        )
    return drawings


def _decode(content: bytes, name: str) -> Pixels:
    with opened_image(io.BytesIO(content), name) as image:
        if image.size != _OFFICIAL_SIZE:  # known from the header, so a decompression bomb is never decoded
            raise DataError(f"{name} is {image.width}x{image.height} instead of 105x105; {_REMEDY}")
        small = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        return 255 - np.asarray(small, np.uint8)
