"""Memories and what was done to them, each in one line for people at a prompt."""

from __future__ import annotations

import os
from collections.abc import Collection

from logcl.allocation import Plan, Slot
from logcl.core.sizes import shape_text
from logcl.core.text import human_bytes, printable
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.manifest import Manifest


def memory(file: MemoryFile) -> str:
    """Path, samples, classes, levels and size; it never raises, whatever is at the path."""
    path = printable(file.path)
    try:
        exists, header = file.exists(), file.header()
        manifest = Manifest.of(header, file.path)
        settings = manifest.settings
        what = f"images {shape_text(settings.image_shape)}"
        if settings.backbone is not None:
            what = f"features of {printable(settings.backbone.name)}"
        if not exists:
            return f"{path}: new, for {what}"
        held = _count(manifest.n, "sample"), _count(len(manifest.classes), "class", "classes")
        levels = _count(sum(name.startswith("level-") for name in header.parts), "level")
        return f"{path}: {held[0]} of {held[1]} in {levels}, {human_bytes(file.nbytes())}, {what}"
    except Exception as error:  # noqa: BLE001 - a debugger shows it in the middle of any problem
        there = "cannot be read" if os.path.lexists(file.path) else "no file"
        return f"{path}: {there} ({type(error).__name__})"


def absorbed(samples: int, n: int, plan: Plan, resumed: Collection[Slot]) -> str:
    """What one task did."""
    fitted = ", ".join(str(slot.level) for slot in plan.train) or "none"
    again = f", resumed: {', '.join(str(slot.level) for slot in resumed)}" if resumed else ""
    levels = _count(len(plan.keep + plan.train), "level")
    return (
        f"{_count(samples, 'sample')}: now {n:,} in {levels}; fitted levels: {fitted}{again}; kept: "
        f"{len(plan.keep)}; {len(plan.buffer):,} in the buffer"
    )


def _count(count: int, word: str, words: str = "") -> str:
    return f"{count:,} {word if count == 1 else words or f'{word}s'}"
