"""A new memory from the intact parts of a damaged one.

There is one level per 1-bit of the number of units. If some are lost, the others are still the levels of a
smaller number of units, so they form a memory with new sample indices and nothing has to be fitted. The
ledger is not copied, because its entries refer to the old indices.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from logcl.allocation import layout
from logcl.core.errors import CannotWrite, Damaged, NotAMemory
from logcl.memory import buffer
from logcl.memory.file.carving import Intact, find_intact
from logcl.memory.fitting import Fit
from logcl.memory.loading import Part, check_claims, chunks_of, claim_of, in_order, levels_of, parse
from logcl.memory.local_model import LocalModel
from logcl.memory.manifest import Manifest
from logcl.memory.memory import Memory
from logcl.memory.samples import concatenate


@dataclass(frozen=True)
class Salvaged:
    """A new memory, and the samples that were lost."""

    memory: Memory
    lost: tuple[range, ...]
    """Sample indices of the damaged memory, oldest first."""

    @property
    def samples_lost(self) -> int:
        """Number of lost samples."""
        return sum(map(len, self.lost))


def salvage(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Salvaged:
    """Write the intact parts of the memory at `path` to a new memory at `target`, and verify it.

    The file at `path` is not changed, except that an interrupted commit is rolled back.
    """
    path = Path(path)
    new = Memory(target)
    if new.file.exists():
        raise CannotWrite(f"{target} exists; choose another name for the salvaged memory")
    if not path.is_file():
        raise NotAMemory(f"{path} is not a file; name a memory file")
    if path.with_name(path.name + "-journal").exists():
        Memory(path).verify()  # rolls the interrupted commit back if possible
    intact = find_intact(path)
    if intact is None:
        raise Damaged(f"{path}: neither the header of a memory nor its copy is intact; restore a backup")
    manifest = Manifest.of(intact.header, path)
    parts = _loaded(intact, manifest, path)
    levels, chunks = levels_of(parts), chunks_of(parts)

    written: dict[str, bytes] = {}
    last, n = 0, 0
    for level in levels:
        moved = level.moved(last + 1)
        written |= Fit.of(moved, np.arange(len(moved))).parts
        last, n = moved.slot.stop, n + len(moved)
    if chunks:
        # There may be gaps between salvaged chunks: they become one chunk without gaps.
        waiting = concatenate([chunk.samples for chunk in chunks])
        waiting = replace(waiting, indices=np.arange(last + 1, last + 1 + len(waiting)))
        last, n = last + len(waiting), n + len(waiting)
        chunk = buffer.Chunk(int(waiting.indices[0]), last, waiting)
        written[f"buffer-{chunk.start}"] = buffer.to_bytes(chunk)

    def check(partial: Path) -> None:
        if problems := Memory(partial).verify():
            raise Damaged(f"{path}: the intact parts do not fit together ({problems[0]}); restore a backup")

    fields = manifest.model_copy(update={"n": n, "last": last}).as_data()
    new.file.create(fields, written, intact.classifier, check)
    kept = [range(level.slot.start, level.slot.stop + 1) for level in levels]
    kept += [range(chunk.start, chunk.stop + 1) for chunk in chunks]
    return Salvaged(new, _between(kept, manifest.last))


def _loaded(intact: Intact, manifest: Manifest, path: Path) -> dict[str, Part]:
    """The usable parts by digest."""
    slots = layout(manifest.last, manifest.settings.unit)
    found: dict[str, Part] = {}
    shape, claimed = manifest.settings.image_shape, {}
    for name, blob in intact.parts.items():
        with suppress(Damaged):
            claimed[name] = claim_of(name, blob, shape, f"{path}: part {name}")
    check_claims(claimed, intact.header, path)
    for name in in_order({name: intact.parts[name] for name in claimed}):
        try:
            part, _ = parse(name, intact.parts[name], manifest, found, f"{path}: part {name}")
        except Damaged:
            continue  # intact but unusable, e.g. because its weights are lost
        if not isinstance(part, LocalModel) or part.slot in slots:
            found[intact.header.parts[name]] = part
    return found


def _between(kept: list[range], n: int) -> tuple[range, ...]:
    """The gaps between ascending ranges, from 1 to n."""
    edges = [0, *(edge for piece in kept for edge in (piece.start - 1, piece.stop - 1)), n]
    gaps = [range(start + 1, stop + 1) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    return tuple(gap for gap in gaps if gap)
