"""What is still intact of a damaged memory file, read past SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from logcl.memory.file import carving
from logcl.memory.file.header import COPY, HEADER, Header, digest_of, inflate, parse

CLASSIFIER = "classifier"
"""The part that is the global model."""


@dataclass(frozen=True)
class Remains:
    """A header and those of its parts that have the right digest."""

    header: Header
    parts: Mapping[str, bytes]
    classifier: bytes | None

    @property
    def lost(self) -> list[str]:
        """Names of the header's other parts."""
        return [name for name in self.header.parts if name not in self.parts]


def find_remains(path: Path, page: int) -> Remains | None:
    """None where no header is left, or never was; the file has pages of so many bytes."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    records = list(carving.records(content, page))
    headers = [parse(data) for name, data in records if name == HEADER]
    headers += [parse(inflate(data)) for name, data in records if name == COPY]
    # Older headers may still be in the file; sample indices only ever grow.
    known = sorted((header for header in headers if header is not None), key=_newest_sample)
    if not known:
        return None
    by_digest = {digest_of(data).hex(): data for _, data in records}
    models = [data for name, data in records if name == CLASSIFIER]
    wanted = known[-1].parts
    return Remains(
        header=known[-1],
        parts={name: by_digest[digest] for name, digest in wanted.items() if digest in by_digest},
        classifier=models[-1] if models else None,
    )


def _newest_sample(header: Header) -> int:
    last = header.fields.get("last", header.fields.get("n"))
    return last if isinstance(last, int) else -1
