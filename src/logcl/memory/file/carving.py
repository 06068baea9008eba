"""Records of a damaged SQLite file, found without SQLite: what is still intact of a memory.

A record of the table `parts` begins with the lengths of its three columns, its name and its SHA-256, so it
can be recognised wherever it lies, whatever has happened to the pages that lead to it; and what is found is
what was written if and only if it has that digest. Pages and records are described in
https://www.sqlite.org/fileformat.html
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

_DIGEST = 32
# How a record begins: size of its header; types of name (text), digest (32 bytes) and data; the name.
_RECORD = re.compile(
    rb"(?=[\x04-\x0c]([\x0d-\x7f])\x4c([\x80-\xff]{0,8}[\x00-\x7f])(?:header|classifier|level-|buffer-|weights-|ledger-))"
)


def records(content: bytes, page: int) -> Iterator[tuple[str, bytes]]:
    """Name and data of every intact record in the content of a file with pages of so many bytes.

    Copies that SQLite has given up are found as well, so a name may come twice. No more is read than a few
    times the file, whatever a forged one claims.
    """
    allowance = 16 * len(content)
    for found in _RECORD.finditer(content):
        name_type, data_type = content[found.start(1)], _number(found[2])
        if name_type % 2 == 0 or data_type < 12 or data_type % 2:
            continue  # not text, or not bytes
        header = found.end(2) - found.start()
        name = header + (name_type - 13) // 2
        size = name + _DIGEST + (data_type - 12) // 2
        record = _with_overflow(content, found.start(), size, page)
        allowance -= len(record)
        if allowance < 0:
            return
        digest, data = record[name : name + _DIGEST], record[name + _DIGEST :]
        if len(record) == size and hashlib.sha256(data).digest() == digest:
            yield record[header:name].decode("ascii", errors="replace"), data


def _number(varint: bytes) -> int:
    """Seven bits a byte, highest first."""
    value = 0
    for byte in varint:
        value = value << 7 | byte & 0x7F
    return value


def _with_overflow(content: bytes, start: int, size: int, page: int) -> bytes:
    """A record that begins at `start` and may go on in a chain of pages; shorter if the chain breaks."""
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
