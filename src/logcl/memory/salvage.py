"""A new memory from what is intact of a damaged one.

Levels are those of the 1-bits of the number of units. Take one away, and the others are still those of the
units that are left: what remains is a memory as it is, under new sample indices, and nothing is trained.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from logcl import allocation
from logcl.core.errors import CannotWrite, Damaged, NotAMemory
from logcl.memory import buffer, samples
from logcl.memory.file.intact import Remains, find_remains
from logcl.memory.file.sqlite import PAGE
from logcl.memory.local_model import LocalModel
from logcl.memory.manifest import Fields
from logcl.memory.memory import Memory


@dataclass(frozen=True)
class Salvaged:
    """A new memory, and what did not get there."""

    memory: Memory
    lost: tuple[range, ...]
    """Sample indices of the damaged memory, oldest first."""

    @property
    def samples_lost(self) -> int:
        """How many."""
        return sum(map(len, self.lost))


def salvage(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Salvaged:
    """Write what is intact of the memory at `path` to a new memory at `target`, and verify that.

    The file at `path` is not changed, except that a commit which was interrupted is undone.
    """
    path = Path(path)
    new = Memory(target)
    if new.file.exists():
        raise CannotWrite(f"{target} exists; choose another name for what is salvaged")
    if not path.is_file():
        raise NotAMemory(f"{path} is not a file; nothing can be salvaged")
    if path.with_name(path.name + "-journal").exists():
        Memory(path).verify()  # undoes the commit that was interrupted, where that is possible
    remains = find_remains(path, PAGE)
    if remains is None:
        raise Damaged(f"{path}: neither the header of a memory nor its copy is intact; restore a backup")
    fields = Fields.of(remains.header, path)
    levels, chunks = _loaded(remains, fields, path)

    parts: dict[str, bytes] = {}
    held = 0
    for level in levels:
        parts[f"level-{level.slot.level}"] = level.moved(held + 1).to_bytes()
        held += level.slot.samples
    if chunks:
        waiting = samples.concatenate([chunk for _, chunk in chunks])
        parts[f"buffer-{held + 1}"] = buffer.to_bytes(held + 1, waiting)
        held += len(waiting)
    new.file.create(fields.model_copy(update={"n": held}).as_data(), parts)
    if remains.classifier is not None:
        new.file.write_classifier(remains.classifier)
    if problems := new.verify():
        new.path.unlink()
        raise Damaged(f"{path}: what is intact does not belong together ({problems[0]}); restore a backup")
    kept = [range(level.slot.start, level.slot.stop + 1) for level in levels]
    kept += [range(start, start + len(chunk)) for start, chunk in chunks]
    return Salvaged(new, _between(kept, fields.n))


def _loaded(
    remains: Remains, fields: Fields, path: Path
) -> tuple[list[LocalModel], list[tuple[int, samples.Samples]]]:
    """Levels and chunks that can be used, oldest first."""
    slots = allocation.layout(fields.n, fields.settings.unit)
    levels, chunks = [], []
    for name, blob in remains.parts.items():
        where = f"{path}: part {name}"
        try:
            if name.startswith("level-"):
                level = LocalModel.from_bytes(blob, where)
                if level.slot in slots:
                    levels.append(level)
            else:
                chunks.append(buffer.from_bytes(blob, fields.settings.image_shape, where))
        except Damaged:
            continue  # written so, not damaged later: lost all the same
    levels.sort(key=lambda level: level.slot.start)
    chunks.sort(key=lambda chunk: chunk[0])
    return levels, chunks


def _between(kept: list[range], n: int) -> tuple[range, ...]:
    """The indices from 1 to n that are in none of the ascending ranges."""
    edges = [0, *(edge for piece in kept for edge in (piece.start - 1, piece.stop - 1)), n]
    gaps = [range(start + 1, stop + 1) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    return tuple(gap for gap in gaps if gap)
