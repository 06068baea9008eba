"""Which parts of the file a task replaces."""

from __future__ import annotations

from collections.abc import Mapping

from logcl.allocation import Plan, Slot
from logcl.memory import buffer, ledger
from logcl.memory.file.header import Header
from logcl.memory.fitting import Fit, level_part, weights_part
from logcl.memory.samples import Samples
from logcl.memory.snapshot import Snapshot


def changes(
    header: Header, now: Snapshot, plan: Plan, fits: Mapping[Slot, Fit], pool: Samples, entry: ledger.Entry
) -> tuple[dict[str, bytes], list[str]]:
    """New parts by name, and the names of those that go.

    now: the memory before the task; pool: the samples of the buffer, and new ones.
    """
    new: dict[str, bytes] = {}
    for fit in fits.values():
        new |= fit.parts
    gone = [level_part(slot) for slot in plan.retire]

    # A completed unit takes everything that waited in the buffer; otherwise the buffer grows by a chunk.
    starts = [chunk.start for chunk in now.chunks]
    begin = plan.buffer.start if plan.train else buffer.chunk_start(starts, entry.start, entry.stop + 1)
    if begin <= entry.stop:
        chunk = buffer.Chunk(begin, entry.stop, pool.between(begin, entry.stop))
        new[f"buffer-{begin}"] = buffer.to_bytes(chunk)
    gone += [f"buffer-{start}" for start in starts if plan.train or start >= begin]

    numbers = ledger.first_entries(header.parts)
    count = len(now.ledger)
    first = buffer.chunk_start(numbers, count, count + 1)
    new[ledger.part_name(first)] = ledger.to_bytes([*now.ledger[first:], entry])
    gone += [ledger.part_name(number) for number in numbers if number > first]

    stay = {level.about.weights for level in now.levels if level.slot in plan.keep}
    used = {weights_part(digest) for digest in stay if digest is not None}
    gone += [name for name in header.parts if name.startswith("weights-") and name not in used]
    return new, gone
