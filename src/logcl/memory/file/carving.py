"""What is intact of a damaged memory file, found without SQLite.

A record of the table `parts` starts with the lengths of its columns, its name and its SHA-256, so it can be
found anywhere in the file, even if the pages that point to it are lost, and its digest proves that it is
unaltered. Pages and records: https://www.sqlite.org/fileformat.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from logcl.memory.file.header import CLASSIFIER, COPY, HEADER, Header, digest_of, inflate, parse
from logcl.memory.file.sqlite import PAGES

_DIGEST = 32
# The start of a record: size of its header; types of name (text), digest (32 bytes) and data; the name.
_RECORD = re.compile(
    rb"(?=[\x04-\x0c]([\x0d-\x7f])\x4c([\x80-\xff]{0,8}[\x00-\x7f])(?:header|classifier|level-|buffer-|weights-|ledger-))"
)


@dataclass(frozen=True)
class Intact:
    """A header and those of its parts whose digest is right."""

    header: Header
    parts: Mapping[str, bytes]
    classifier: bytes | None

    @property
    def lost(self) -> list[str]:
        """Names of the header's other parts."""
        return [name for name in self.header.parts if name not in self.parts]


def find_intact(path: Path) -> Intact | None:
    """The newest intact header of a file and its intact parts; None if there is no intact header."""
    if not path.is_file():
        return None  # reading a pipe could block
    try:
        found = list(records(path.read_bytes()))
    except OSError:
        return None
    headers = [parse(data) for name, data in found if name == HEADER]
    headers += [parse(inflate(data)) for name, data in found if name == COPY]
    # Older headers may still be in the file; sample indices only ever grow.
    known = sorted(filter(None, headers), key=_last_sample)
    if not known:
        return None
    newest = known[-1]
    by_digest = {digest_of(data).hex(): data for _, data in found}
    return Intact(
        header=newest,
        parts={name: by_digest[digest] for name, digest in newest.parts.items() if digest in by_digest},
        classifier=dict(found).get(CLASSIFIER),
    )


def records(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and data of every intact record in the content of a memory file.

    Records that SQLite has deleted but not overwritten are included, so a name may occur twice. At most 16
    times the size of the file is read, even if a forged file refers to the same pages again and again.
    """
    allowance = 16 * len(content)
    for found in _RECORD.finditer(content):
        name_type, data_type = content[found.start(1)], 0
        for byte in found[2]:  # a varint: seven bits per byte, highest first
            data_type = data_type << 7 | byte & 0x7F
        if name_type % 2 == 0 or data_type < 12 or data_type % 2:
            continue  # not text, or not bytes
        header = found.end(2) - found.start()
        name = header + (name_type - 13) // 2
        size = name + _DIGEST + (data_type - 12) // 2
        for page in PAGES:  # what the file says of its pages may be damaged, too
            record = _with_overflow(content, found.start(), size, page)
            allowance -= len(record)
            if allowance < 0:
                return
            digest, data = record[name : name + _DIGEST], record[name + _DIGEST :]
            if len(record) == size and digest_of(data) == digest:
                yield record[header:name].decode("ascii", errors="replace"), data
                break


def _with_overflow(content: bytes, start: int, size: int, page: int) -> bytes:
    """The record at `start` with its chain of overflow pages; shorter than `size` if the chain is broken."""
    most = page - 35
    if size <= most:
        return content[start : start + size]
    least = (page - 12) * 32 // 255 - 23
    local = least + (size - least) % (page - 4)
    local = local if local <= most else least
    pieces = [content[start : start + local]]
    missing, link, seen = size - local, start + local, set()
    while missing > 0:
        number = int.from_bytes(content[link : link + 4], "big")
        link = (number - 1) * page
        if number in seen or not 0 < link + 4 < len(content):
            break
        seen.add(number)
        pieces.append(content[link + 4 : link + min(page, 4 + missing)])
        missing -= len(pieces[-1])
    return b"".join(pieces)


def _last_sample(header: Header) -> int:
    last = header.fields.get("last", header.fields.get("n"))
    return last if isinstance(last, int) else -1
