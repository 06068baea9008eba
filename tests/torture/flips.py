"""Single bytes of a real memory file are changed: each change is detected or makes no difference."""

from __future__ import annotations

import random
from pathlib import Path

from logcl import Classifier, Memory
from logcl.core.errors import LogCLError
from logcl.memory.file.carving import find_intact
from logcl.memory.file.memory_file import MemoryFile
from logcl.streams import open_stream
from tests.torture.life import Content, content
from tests.torture.outcome import Outcome, Tally

_QUICK = {
    "codec.name": "autoencoder", "codec.epochs": 1, "codec.min_steps": 20,
    "classifier.epochs": 1, "classifier.min_steps": 4, "classifier.width": 4,
}  # fmt: skip


def trial(count: int | None, seed: int, folder: Path) -> Outcome:
    """Change `count` bytes, spread evenly over the file, or all of them (None), one at a time."""
    rng, tally = random.Random(seed), Tally(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = _memory(folder / "m.logcl")
    sound, expected = file.path.read_bytes(), content(file)
    places = range(len(sound)) if count is None else sorted(rng.sample(range(len(sound)), count))
    for place in places:
        damaged = bytearray(sound)
        damaged[place] ^= rng.randrange(1, 256)
        file.path.write_bytes(damaged)
        kind, wrong = _evaluate(file, expected)
        tally.details[kind] += 1
        tally.count({"m.logcl": bytes(damaged)}, f"byte {place}", wrong)
    file.path.unlink()
    return tally.outcome(
        "flips",
        "one byte of a memory file is changed; what is read is the same or refused, verify names the part, "
        "and salvage would lose that part at most",
    )


def _memory(path: Path) -> MemoryFile:
    """Two levels, a buffer and a classifier."""
    task = next(iter(open_stream("digits")))
    memory = Memory.open(path, (1, 8, 8), unit=16, settings=_QUICK)
    memory.absorb(task.x[:90], task.y[:90])
    Classifier.train(memory)
    return memory.file


def _evaluate(file: MemoryFile, expected: Content) -> tuple[str, str]:
    """The effect of the change, and what is wrong with it ("" if nothing)."""
    assert expected is not None
    try:
        found = content(file)
    except LogCLError:
        found = None
    same = found == expected
    # A global model whose name is damaged is not found and must be trained again: verify must report it.
    if found is not None and not same and found != (*expected[:2], None):
        return "served", "other content is read without an error"
    try:
        problems = file.problems()
    except LogCLError as error:
        problems = [str(error)]
    if not same and not problems:
        return "unnoticed", "it cannot be read, but verify reports no problem"
    intact = find_intact(file.path)
    if intact is None or len(intact.lost) > 1:
        return "not to be salvaged", "more than one part is lost with it"
    if same:
        return ("reported, though it made no difference" if problems else "made no difference"), ""
    return "refused and reported", ""
