"""The ledger: one entry per task, in order of arrival: what it was, when it was absorbed, and from where.

Entries are stored in parts of the file named after the number of their first entry. As in the buffer, a new
part absorbs the parts before it that are no larger, so there are only logarithmically many.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from logcl.core.errors import BadInput, Contradictory, Damaged
from logcl.core.inputs import Label, Labels
from logcl.core.settings import MOST_SAMPLES, Frozen
from logcl.core.text import printable
from logcl.memory.file.header import LEDGER

_LARGEST = 2**26  # bytes that a part is inflated to
_DIGEST = 32  # bytes of a SHA-256


Source = Annotated[str, Field(max_length=4096)]
_SOURCE: TypeAdapter[str] = TypeAdapter(Source)


class Entry(Frozen):
    """One task."""

    start: int = Field(ge=1, lt=MOST_SAMPLES)
    stop: int = Field(ge=1, lt=MOST_SAMPLES)
    """First and last sample index."""
    when: datetime
    """When the task was absorbed, UTC, in whole seconds."""
    source: Source = ""
    """Where the samples came from, as given by the caller."""
    classes: Labels
    """Labels of the task."""
    digest: str = Field(pattern="^[0-9a-f]{32}$")
    """`content_digest` of images and labels."""
    images: str = Field("", pattern="^([0-9a-f]{32})?$")
    """Digest of the images alone, in any order; empty in entries of early files."""

    @property
    def samples(self) -> int:
        """Samples that the task had."""
        return self.stop - self.start + 1


_ENTRIES = TypeAdapter(Annotated[tuple[Entry, ...], FailFast(), Field(min_length=1)])


def content_digest(x: NDArray[np.uint8], labels: Sequence[Label]) -> str:
    """A digest of the images (n, C, H, W) and labels of a task: 128 bits, hexadecimal."""
    digest = hashlib.sha256(json.dumps([x.shape, list(labels)]).encode())
    digest.update(np.ascontiguousarray(x).data)
    return digest.hexdigest()[:32]


def new_entry(start: int, x: NDArray[np.uint8], labels: Sequence[Label], source: str) -> Entry:
    """The entry of a task that arrives now; `start` is its first sample index.

    Warns if identical images have different labels.
    """
    try:
        _SOURCE.validate_python(source).encode()
    except ValueError as error:
        raise BadInput(
            f"source is {printable(source)[:100]!r}; give a text of up to 4,096 characters"
        ) from error
    each = image_digests(x)
    order = each.argsort(kind="stable")
    if unclear := contradictions(each, order, labels):
        first, second = (printable(labels[row]) for row in min(unclear))
        count = "1 image has" if len(unclear) == 1 else f"{len(unclear):,} images have"
        warnings.warn(
            f"{printable(source) or 'this task'}: {count} identical copies under another label, the first "
            f"under {first} and {second}; all of them are kept, so check the labels",
            Contradictory,
            stacklevel=3,
        )
    return Entry(
        start=start, stop=start + len(x) - 1, when=datetime.now(timezone.utc).replace(microsecond=0),
        source=source, classes=tuple(dict.fromkeys(labels)), digest=content_digest(x, labels),
        images=hashlib.sha256(each[order].data).hexdigest()[:32],
    )  # fmt: skip


def image_digests(x: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """The SHA-256 of each image, (n,) of 32 bytes; Python objects would take more than small images do."""
    each = bytearray(_DIGEST * len(x))
    for row, image in enumerate(np.ascontiguousarray(x)):
        each[_DIGEST * row : _DIGEST * (row + 1)] = hashlib.sha256(image.data).digest()
    return np.frombuffer(each, f"S{_DIGEST}")


def contradictions(
    each: NDArray[np.bytes_], order: NDArray[np.int64], labels: Sequence[Label]
) -> list[tuple[int, int]]:
    """Rows of the first two different labels of each image that has several; `order` sorts the digests."""
    numbers: dict[Label, int] = {}
    number = np.fromiter((numbers.setdefault(label, len(numbers)) for label in labels), np.int64, len(order))
    ordered, number = each[order], number[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    first = np.repeat(starts, np.diff(starts, append=len(order)))  # of each sample's image
    others = np.flatnonzero(number != number[first])
    _, where = np.unique(first[others], return_index=True)
    return [(int(order[first[row]]), int(order[row])) for row in others[where].tolist()]


def check_is_new(task: Entry, earlier: Iterable[Entry], path: Path) -> None:
    """Refuse a task whose images are those of an earlier task, in any order and with any labels."""
    for entry in earlier:
        if task.images == entry.images or task.digest == entry.digest:
            raise BadInput(
                f"{path} already holds the images of this task, as samples {entry.start:,} to "
                f"{entry.stop:,}, absorbed on {entry.when:%Y-%m-%d at %H:%M} UTC"
                f"{' from ' if entry.source else ''}{printable(entry.source)}; absorb them again with "
                f"--again (in Python again=True)"
            )


def part_name(first: int) -> str:
    """The part whose first entry has this number, counted from 0."""
    return f"{LEDGER}{first}"


def first_entries(names: Iterable[str]) -> list[int]:
    """Numbers of the first entries of the ledger's parts, ascending."""
    return sorted(int(name.removeprefix(LEDGER)) for name in names if name.startswith(LEDGER))


def to_bytes(entries: Sequence[Entry]) -> bytes:
    """Entries as deflated JSON."""
    return zlib.compress(_ENTRIES.dump_json(tuple(entries)), 9)


def inflated_bytes(data: bytes) -> int:
    """Bytes of JSON that a part is inflated to, at most `_LARGEST`; 0 if it cannot be."""
    stream, size = zlib.decompressobj(), 0
    try:
        while data and size < _LARGEST:
            size += len(stream.decompress(data, 2**16))
            data = stream.unconsumed_tail
    except zlib.error:
        return 0  # `from_bytes` says what is wrong
    return size


def from_bytes(data: bytes, name: str) -> tuple[Entry, ...]:
    """The inverse of `to_bytes`; `name` is for the error message."""
    try:
        # Not pydantic's own reader of JSON: `from_json` refuses what is nested too deeply.
        content: Any = from_json(zlib.decompressobj().decompress(data, _LARGEST))
        return _ENTRIES.validate_python(content)
    except (zlib.error, ValueError, ValidationError) as error:
        reason = printable(" ".join(str(error).split())[:200])
        raise Damaged(f"{name} cannot be read ({reason}); `logcl verify` says what is intact") from error
