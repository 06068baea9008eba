"""The header of a memory file: what the memory says of itself, and the digest of each of its parts."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HEADER, COPY = "header", "header-copy"
"""Names of the part that is the header, and of the one that is the same deflated."""

LEDGER = "ledger-"
"""How the names of parts begin that hold the ledger: when tasks came is not part of what the memory holds."""

_PART = re.compile(r"(level|buffer|ledger)-[0-9]{1,19}|weights-[0-9a-f]{16}")
_LARGEST = 2**26  # bytes that a copy is inflated to


@dataclass(frozen=True)
class Header:
    """The content of a memory at one moment."""

    fields: Mapping[str, Any]
    """What the memory says of itself: settings, number of samples, classes."""
    parts: Mapping[str, str]
    """Name → digest (hexadecimal) of every part."""
    digest: str
    """Of the header itself, and through `parts` of everything."""
    content: str
    """The same without the ledger: memories with equal content replay equal samples."""


def to_bytes(fields: Mapping[str, Any], parts: Mapping[str, str]) -> bytes:
    """Equal content gives equal bytes."""
    content = {"memory": fields, "parts": dict(parts)}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse(data: bytes) -> Header | None:
    """What `to_bytes` wrote; None if it is no header."""
    try:
        content = json.loads(data)
        fields, parts = dict(content["memory"]), dict(content["parts"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not all(_PART.fullmatch(name) and isinstance(digest, str) for name, digest in parts.items()):
        return None
    digest = digest_of(data).hex()
    held = {name: part for name, part in parts.items() if not name.startswith(LEDGER)}
    content = digest if held == parts else digest_of(to_bytes(fields, held)).hex()
    return Header(fields, parts, digest, content)


def inflate(copy: bytes) -> bytes:
    """The header that a copy stands for; nothing if it is damaged."""
    try:
        return zlib.decompressobj().decompress(copy, _LARGEST)
    except zlib.error:
        return b""


def digest_of(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()
