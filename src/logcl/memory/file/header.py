"""The header of a memory file: a description of the memory and the digest of each of its parts."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HEADER, COPY, CLASSIFIER = "header", "header-copy", "classifier"
"""Names of the parts that no header lists: the header itself, its deflated copy and the global model."""

LEDGER = "ledger-"
"""Prefix of the parts that hold the ledger, which does not count as content: see `Header.content`."""

_PART = re.compile(r"(level|buffer|ledger)-[0-9]{1,19}|weights-[0-9a-f]{16}")
_LARGEST, _RATIO = 2**20, 128  # a copy is inflated to these bytes at most, or to this many times its own


@dataclass(frozen=True)
class Header:
    """The content of a memory at one moment."""

    fields: Mapping[str, Any]
    """Settings, number of samples, classes: see `memory.manifest`."""
    parts: Mapping[str, str]
    """Name → digest (hexadecimal) of every part."""
    digest: str
    """Of the header itself, and thereby of everything in `parts`."""
    content: str
    """The digest without the ledger: memories with equal content replay equal samples."""


def to_bytes(fields: Mapping[str, Any], parts: Mapping[str, str]) -> bytes:
    """JSON in canonical form: equal content gives equal bytes."""
    content = {"memory": fields, "parts": dict(parts)}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def make(fields: Mapping[str, Any], parts: Mapping[str, str]) -> Header:
    """The header of this content."""
    header = parse(to_bytes(fields, parts))
    assert header is not None
    return header


def parse(data: bytes) -> Header | None:
    """The inverse of `to_bytes`; None if the bytes are not a header."""
    try:
        content = json.loads(data)
        fields, parts = dict(content["memory"]), dict(content["parts"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not all(_PART.fullmatch(name) and isinstance(digest, str) for name, digest in parts.items()):
        return None
    digest = digest_of(data).hex()
    held = {name: part for name, part in parts.items() if not name.startswith(LEDGER)}
    try:
        content = digest if held == parts else digest_of(to_bytes(fields, held)).hex()
    except ValueError:  # half of a surrogate pair, which JSON can write and UTF-8 cannot
        return None
    return Header(fields, parts, digest, content)


def inflate(copy: bytes) -> bytes:
    """The header of which this is the deflated copy; empty if the copy is damaged."""
    try:
        return zlib.decompressobj().decompress(copy, _LARGEST + _RATIO * len(copy))
    except zlib.error:
        return b""


def digest_of(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()
