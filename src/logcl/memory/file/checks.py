"""Checks of a memory file: the structure of SQLite, the digests, and the list of parts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from logcl.core.errors import Damaged, NewerFormat, NotAMemory
from logcl.core.text import printable
from logcl.memory.file import parts, sqlite
from logcl.memory.file.carving import find_intact
from logcl.memory.file.header import CLASSIFIER, COPY, HEADER, digest_of, inflate


def find_problems(path: Path) -> list[str]:
    """One sentence per problem of the file; empty if it is sound. Does not decode parts."""
    found: list[str] = []
    try:
        with sqlite.reading(path) as database:
            for (message,) in database.execute("PRAGMA integrity_check(9)"):
                if message != "ok":
                    found.append(f"SQLite: {printable(message)}")
            found += _problems_of_parts(database, path)
    except NewerFormat:
        raise
    except (Damaged, NotAMemory) as error:
        intact = find_intact(path)
        if intact is None and isinstance(error, NotAMemory):
            raise
        found.append(str(error))
        if intact is None:
            return [*found, "neither the header nor its copy is intact"]
        found += [f"part {name} is lost" for name in intact.lost]
        if not intact.lost:
            found.append("all parts are intact: `logcl verify --salvage` writes them to a new file")
    return found


def _problems_of_parts(database: sqlite3.Connection, path: Path) -> list[str]:
    """Parts that do not match their digests or the header."""
    header = parts.read_header(database, path)
    found, digests = [], {}
    for name, digest, data in parts.rows(database):
        digests[name] = digest_of(data).hex()
        if digests[name] != digest.hex():
            found.append(f"part {printable(name)} does not match its own digest")
        if name == COPY and (copy := inflate(data)) and digest_of(copy).hex() != header.digest:
            found.append("the copy of the header differs from the header")
    if COPY not in digests and sqlite.version(database) > 2:
        found.append("the copy of the header is missing")
    for name, expected in header.parts.items():
        if digests.get(name) != expected:
            problem = "does not match the header" if name in digests else "is missing"
            found.append(f"part {name} {problem}")
    listed = {HEADER, COPY, CLASSIFIER, *header.parts}
    stray = [name for name in digests if name not in listed and not name.startswith(parts.STAGED)]
    return found + [f"part {printable(name)} is not listed" for name in stray]
