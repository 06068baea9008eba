"""From the parts of a memory file to a `Snapshot`."""

from __future__ import annotations

from collections.abc import Mapping

from logcl.codecs import registry
from logcl.codecs.base import Codec
from logcl.core.errors import Damaged
from logcl.memory import buffer, ledger
from logcl.memory.buffer import Chunk
from logcl.memory.file.header import LEDGER, Header, digest_of
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.fitting import level_part, weights_part
from logcl.memory.ledger import Entry
from logcl.memory.local_model import LocalModel
from logcl.memory.manifest import Manifest
from logcl.memory.snapshot import Snapshot, inconsistency

Part = LocalModel | Chunk | Codec | tuple[Entry, ...]


class Loader:
    """Loads one file. Parts are known by their digests, so none is read twice."""

    def __init__(self, file: MemoryFile) -> None:
        self.file = file
        self._known: dict[str, Part] = {}

    def load(self) -> tuple[Header, Snapshot]:
        """The header and everything it lists, of one moment and checked."""
        # Threads may share a memory: what is known is copied here and replaced at the end, never edited.
        known = dict(self._known)
        header, blobs = self.file.snapshot(known=known)
        manifest = Manifest.of(header, self.file.path)
        for name in in_order(blobs):
            where = f"{self.file.path}: part {name}"
            part, proper = parse(name, blobs[name], manifest, known, where)
            if name != proper:
                raise Damaged(f"{where} holds {proper}; `logcl verify` says what is intact")
            known[header.parts[name]] = part
        self._known = {digest: known[digest] for digest in header.parts.values()}
        loaded = {name: known[digest] for name, digest in header.parts.items()}
        now = Snapshot(
            manifest=manifest,
            levels=levels_of(loaded),
            chunks=chunks_of(loaded),
            ledger=self._ledger(loaded),
            digest=header.content,
        )
        lost = [level.about.weights for level in now.levels if level.about.weights]
        if not set(lost) <= set(header.parts.values()):  # a level may be known from before
            raise Damaged(f"{self.file.path}: weights are missing; `logcl verify` says what is intact")
        if problem := inconsistency(now):
            raise Damaged(f"{self.file.path}: {problem}; `logcl verify` says what is intact")
        return header, now

    def _ledger(self, loaded: Mapping[str, Part]) -> tuple[Entry, ...]:
        entries: tuple[Entry, ...] = ()
        for first in ledger.first_entries(loaded):
            part = loaded[ledger.part_name(first)]
            if first != len(entries) or not isinstance(part, tuple):
                raise Damaged(f"{self.file.path}: its ledger has gaps; `logcl verify` says what is intact")
            entries += part
        return entries


def in_order(names: Mapping[str, bytes]) -> list[str]:
    """Names of parts in an order in which they can be parsed: levels last, because they refer to weights."""
    return sorted(names, key=lambda name: name.startswith("level-"))


def parse(
    name: str, blob: bytes, manifest: Manifest, known: Mapping[str, Part], where: str
) -> tuple[Part, str]:
    """A part, and the name that it should have; `known` holds codecs by the digest of their weights."""
    if name.startswith("level-"):
        codecs = {digest: part for digest, part in known.items() if isinstance(part, Codec)}
        level = LocalModel.from_bytes(blob, codecs, where)
        return level, level_part(level.slot)
    if name.startswith("weights-"):
        return registry.from_bytes(blob, where), weights_part(digest_of(blob).hex())
    if name.startswith(LEDGER):
        return ledger.from_bytes(blob, where), name
    chunk = buffer.from_bytes(blob, manifest.settings.image_shape, where)
    return chunk, f"buffer-{chunk.start}"


def levels_of(parts: Mapping[str, Part]) -> tuple[LocalModel, ...]:
    """The levels among some parts, oldest first."""
    levels = [part for part in parts.values() if isinstance(part, LocalModel)]
    return tuple(sorted(levels, key=lambda level: level.slot.start))


def chunks_of(parts: Mapping[str, Part]) -> tuple[Chunk, ...]:
    """The chunks of the buffer among some parts, oldest first."""
    chunks = [part for part in parts.values() if isinstance(part, Chunk)]
    return tuple(sorted(chunks, key=lambda chunk: chunk.start))
