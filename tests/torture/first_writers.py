"""Two `logcl absorb` that start at once where no memory exists yet."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

from logcl import Memory
from logcl.core.errors import LogCLError
from tests.torture.commands import save_tasks, start
from tests.torture.outcome import Outcome, Tally

_SIZES = (30, 47)
_QUICK = ("--unit", 32, "--codec", "autoencoder", "--set", "codec.epochs=1", "--set", "codec.min_steps=0")
_KILLED = 0.2
"""Share of the attempts in which one of the two is killed."""


def trial(tries: int, seed: int, folder: Path) -> Outcome:
    """Let two processes create one memory, `tries` times."""
    rng, tally = random.Random(seed), Tally(folder)
    tasks = save_tasks(folder / "tasks", _SIZES)
    for number in range(tries):
        place = folder / "try"
        path = place / "m.logcl"
        writers = []
        for writer in rng.sample(range(2), 2):
            writers.append((writer, start(place / str(writer), "absorb", path, tasks[writer], *_QUICK)))
            time.sleep(rng.random() * 0.1)
        if killed := rng.random() < _KILLED:
            time.sleep(rng.random() * 0.2)
            writers[0][1].process.kill()
        ended = {writer: command.finish() for writer, command in writers}
        wrong = _wrong(path, tasks, ended, killed=writers[0][0] if killed else None)
        files = {file.name: file.read_bytes() for file in place.glob("*m.logcl*")}
        said = "; ".join(f"{code}: {err.strip()}" for code, _, err in ended.values())
        tally.count(files, f"attempt {number} ({said})", wrong)
        done = sum(code == 0 for code, _, _ in ended.values())
        tally.details["one killed" if killed else f"{('none', 'one', 'both')[done]} absorbed"] += 1
        shutil.rmtree(place)
    shutil.rmtree(folder / "tasks")
    return tally.outcome(
        "first writers",
        "two `logcl absorb` create the same memory at once, and in a fifth of the attempts one of them is "
        "killed: what was reported as absorbed is there, and nothing else",
    )


def _wrong(path: Path, tasks: list[Path], ended: dict[int, tuple[int, str, str]], killed: int | None) -> str:
    """What is wrong with the memory or with the messages of the writers ("" if nothing)."""
    for writer, (code, out, err) in ended.items():
        if writer != killed and (
            code not in (0, 6, 7) or "Traceback" in err or ("absorbed" in out) == bool(code)
        ):
            return f"exit {code}: {err}"
    said = {str(tasks[writer]) for writer, (_, out, _) in ended.items() if "absorbed" in out}
    if not said and killed is None:
        return "both were refused"
    memory = Memory(path)
    if not memory.file.exists():
        return "the memory is gone" if said else ""
    try:
        held = [entry.source for entry in memory.ledger]
        maybe = {str(tasks[killed])} if killed is not None else set()
        if len(set(held)) < len(held) or not said <= set(held) <= said | maybe:
            return f"holds {held}, reported were {said}"
        return "; ".join(memory.verify())
    except LogCLError as error:
        return f"{type(error).__name__}: {error}"
