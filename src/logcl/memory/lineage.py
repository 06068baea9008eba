"""Which memory a file holds: it stays the same one as it grows, and differs from any other at its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logcl.core.settings import ImageShape
from logcl.memory import ledger
from logcl.memory.file.header import Header, digest_of
from logcl.memory.ledger import Entry
from logcl.memory.manifest import Manifest
from logcl.memory.snapshot import Snapshot


@dataclass(frozen=True)
class Lineage:
    """What no commit changes about a memory, and the tasks it is known to hold."""

    settings: tuple[str, ImageShape, int, int]
    """Preset, image shape, unit, seed."""
    notes: str
    """A digest."""
    strings: bool | None
    """Whether labels are strings; None as long as there are none."""
    tasks: tuple[str, ...]
    """The oldest ones. Files whose tasks were absorbed before there was a ledger have none."""

    @staticmethod
    def of(manifest: Manifest, entries: Sequence[Entry]) -> Lineage:
        """The lineage of a memory with these entries at the start of its ledger."""
        has = manifest.settings
        return Lineage(
            (has.preset, has.image_shape, has.unit, has.seed),
            digest_of(repr(sorted(manifest.notes.items())).encode()).hex(),
            isinstance(manifest.classes[0], str) if manifest.classes else None,
            tuple(f"{entry.start} {entry.digest} {entry.when.isoformat()}" for entry in entries),
        )

    def includes(self, later: Lineage) -> bool:
        """Whether a memory of this lineage may have become one of the other by absorbing tasks."""
        same = (self.settings, self.notes) == (later.settings, later.notes)
        tasks = later.tasks[: len(self.tasks)]
        return same and self.strings in (None, later.strings) and self.tasks == tasks


def has_grown_from(now: Snapshot, header: Header, parts: Mapping[str, bytes], path: Path) -> bool:
    """Whether the memory with this header and ledger, at `path`, is `now`, or `now` after further tasks."""
    if header.content == now.digest:
        return True
    names = map(ledger.part_name, ledger.first_entries(parts))
    entries = [entry for name in names for entry in ledger.from_bytes(parts[name], f"{path}: part {name}")]
    added = entries[len(now.ledger) :]
    if not added or added[0].start != now.manifest.last + 1:
        return False
    return Lineage.of(now.manifest, now.ledger).includes(Lineage.of(Manifest.of(header, path), entries))
