"""From the parts of a memory file to a `Snapshot`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from logcl.codecs import registry
from logcl.codecs.base import Codec
from logcl.core.descriptions import described, description
from logcl.core.errors import Damaged
from logcl.core.settings import ImageShape
from logcl.memory import buffer, claims, ledger
from logcl.memory.buffer import Chunk
from logcl.memory.file.header import LEDGER, Header, digest_of
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.fitting import level_part, weights_part
from logcl.memory.ledger import Entry
from logcl.memory.local_model import LocalModel, claim
from logcl.memory.manifest import Manifest
from logcl.memory.samples import LevelHistory
from logcl.memory.snapshot import Snapshot, inconsistency

Part = LocalModel | Chunk | Codec | tuple[Entry, ...]


class Loader:
    """Loads one file. Parts are known by their digests, so none is read twice."""

    def __init__(self, file: MemoryFile) -> None:
        self.file = file
        self._known: dict[str, tuple[Part, claims.Claim]] = {}

    def load(self) -> tuple[Header, Snapshot]:
        """The header and everything it lists, of one moment and checked."""
        # Threads may share a memory: what is known is copied here and replaced at the end, never edited.
        known = dict(self._known)
        header, blobs = self.file.snapshot(known=known)
        manifest = Manifest.of(header, self.file.path)
        shape = manifest.settings.image_shape
        claimed = {digest: claim for digest, (_, claim) in known.items()}
        for name, blob in blobs.items():
            claimed[header.parts[name]] = claim_of(name, blob, shape, f"{self.file.path}: part {name}")
        stored = check_claims(
            {name: claimed[digest] for name, digest in header.parts.items()}, header, self.file.path
        )
        parts = {digest: part for digest, (part, _) in known.items()}
        for name in in_order(blobs):
            where = f"{self.file.path}: part {name}"
            part, proper = parse(name, blobs[name], manifest, parts, where)
            if name != proper:
                raise Damaged(f"{where} holds {proper}; `logcl verify` says what is intact")
            parts[header.parts[name]] = part
        self._known = {digest: (parts[digest], claimed[digest]) for digest in header.parts.values()}
        loaded = {name: parts[digest] for name, digest in header.parts.items()}
        now = Snapshot(
            manifest=manifest,
            levels=levels_of(loaded),
            chunks=chunks_of(loaded),
            ledger=self._ledger(loaded),
            digest=header.content,
            stored=stored,
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


def claim_of(name: str, blob: bytes, image_shape: ImageShape, where: str) -> claims.Claim:
    """What a part claims according to its description; nothing is decoded."""
    if name.startswith("weights-"):
        return claims.Claim(0, len(blob))
    if name.startswith(LEDGER):
        return claims.Claim(claims.ENTRIES * ledger.inflated_bytes(blob), len(blob))
    about = description(blob, where)
    if name.startswith("level-"):
        level = LevelHistory.of(about, where)
        spec = about["codec"] if isinstance(about.get("codec"), dict) else {}
        labeller = about.get("labeller") is not None
        claimed, at_once = claim(spec, level.slot.samples, image_shape, labeller=labeller)
        return claims.Claim(claimed, len(blob), level.weights, at_once)
    chunk = described(buffer.Description, about, where)
    return claims.Claim(claims.of_samples(chunk.slot.samples, image_shape, claims.RAW), len(blob))


def check_claims(parts: Mapping[str, claims.Claim], header: Header, path: Path) -> int:
    """Refuse parts that together claim more than their bytes justify; returns the bytes of all."""
    weights = {header.parts[k]: claim.stored for k, claim in parts.items() if k.startswith("weights-")}
    others = [claim for name, claim in parts.items() if not name.startswith("weights-")]
    if problem := claims.unjustified(others, weights):
        raise Damaged(f"{path}: {problem}; do not use this file")
    return sum(claim.stored for claim in parts.values())


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
