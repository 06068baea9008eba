"""The table `parts`: named bytes, each stored with its digest. Works on an open connection.

SQLite does not enforce column types: whatever a damaged or forged file holds is read as text and bytes.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from logcl.core.errors import Damaged
from logcl.memory.file import header as headers
from logcl.memory.file import sqlite
from logcl.memory.file.header import COPY, HEADER, Header, digest_of

STAGED = "staged-"
"""Prefix of unfinished work, which no header lists."""

_IS_STAGED = f"substr(name, 1, {len(STAGED)}) = '{STAGED}'"
_NAME = "COALESCE(CAST(name AS TEXT), '')"
_DIGEST, _DATA = "COALESCE(CAST(digest AS BLOB), x'')", "COALESCE(CAST(data AS BLOB), x'')"
_ROWS = f"SELECT {_NAME}, {_DIGEST}, {_DATA} FROM parts"


def rows(database: sqlite3.Connection) -> Iterator[tuple[str, bytes, bytes]]:
    """Name, digest and data of every part, unchecked."""
    yield from database.execute(_ROWS)


def row(database: sqlite3.Connection, name: str) -> tuple[bytes, bytes] | None:
    """Digest and data of one part, unchecked; None if it is missing."""
    query = f"SELECT {_DIGEST}, {_DATA} FROM parts WHERE name = ?"
    found: tuple[bytes, bytes] | None = database.execute(query, (name,)).fetchone()
    return found


def read_header(database: sqlite3.Connection, path: Path) -> Header:
    """The header, verified."""
    found = row(database, HEADER)
    if found is None or digest_of(found[1]) != found[0]:
        raise damaged(path, "the header is damaged or missing")
    header = headers.parse(found[1])
    if header is None:
        raise damaged(path, "the header cannot be read")
    return header


def read(database: sqlite3.Connection, digests: Mapping[str, str], path: Path) -> dict[str, bytes]:
    """Parts by name, verified against these digests."""
    parts = {}
    for name, digest in digests.items():
        found = row(database, name)
        if found is None or digest_of(found[1]).hex() != digest:
            raise damaged(path, f"part {name} is damaged or missing")
        parts[name] = found[1]
    return parts


def staged(database: sqlite3.Connection) -> dict[str, bytes]:
    """Staged work by name, without what is damaged."""
    found = database.execute(f"{_ROWS} WHERE {_IS_STAGED}").fetchall()
    return {name.removeprefix(STAGED): data for name, digest, data in found if digest_of(data) == digest}


def sizes(database: sqlite3.Connection) -> dict[str, int]:
    """Bytes of each part, in order of names."""
    return dict(database.execute(f"SELECT {_NAME}, length({_DATA}) FROM parts ORDER BY name").fetchall())


def put(database: sqlite3.Connection, name: str, data: bytes) -> None:
    """Add or replace a part."""
    database.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", (name, digest_of(data), data))


def delete(database: sqlite3.Connection, names: Collection[str]) -> None:
    """Delete parts; those that do not exist are ignored."""
    database.executemany("DELETE FROM parts WHERE name = ?", [(name,) for name in names])


def delete_staged(database: sqlite3.Connection) -> None:
    """Delete all staged work."""
    database.execute(f"DELETE FROM parts WHERE {_IS_STAGED}")


def write(
    database: sqlite3.Connection,
    fields: Mapping[str, Any],
    digests: Mapping[str, str],
    new: Mapping[str, bytes],
) -> None:
    """Write new parts, and the header of all parts with its copy, in the current format."""
    header = headers.to_bytes(fields, digests)
    put(database, COPY, zlib.compress(header, 9))
    for name, data in new.items():
        put(database, name, data)
    put(database, HEADER, header)
    database.execute(f"PRAGMA user_version = {sqlite.FORMAT}")


def digests_of(parts: Mapping[str, bytes]) -> dict[str, str]:
    """Digests of parts by name, as a header lists them."""
    return {name: digest_of(data).hex() for name, data in parts.items()}


def damaged(path: Path, problem: str) -> Damaged:
    """The error of a file whose content fails a check."""
    return Damaged(f"{path}: {problem}; `logcl verify` says what is intact")
