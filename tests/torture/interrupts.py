"""Ctrl-C at every line of a commit and of what follows: the message of the command matches the file."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from logcl import Memory
from logcl.core.errors import LogCLError
from tests.torture.commands import Interrupt, save_tasks, start
from tests.torture.outcome import Outcome, Tally

_QUICK = ("--unit", 32, "--codec", "autoencoder", "--set", "codec.epochs=1", "--set", "codec.min_steps=0")
_NEVER = 10**9


@dataclass(frozen=True)
class Scene:
    """A command that commits something."""

    name: str
    command: Callable[[Path, Path], list[object]]
    """Arguments for the memory and the folder of tasks."""
    function: str
    """Where it commits."""
    before: bytes | None
    """The memory file before; None if there is none."""


def trial(tries: int | None, seed: int, folder: Path) -> Outcome:
    """Interrupt commits at about `tries` lines, or at every line (None)."""
    rng, tally = random.Random(seed), Tally(folder)
    week = folder / "week"
    save_tasks(week, (40, 30, 30))
    scenes = _scenes(folder, week)
    cases = [(scene, at) for scene in scenes for at in range(_lines(scene, folder, week))]
    for scene, at in cases if tries is None else rng.sample(cases, min(tries, len(cases))):
        path = _prepared(scene, folder)
        code, out, err = _run(scene, at, path, week)
        files = {file.name: file.read_bytes() for file in path.parent.glob("*m.logcl*")}
        wrong, said = _judged(scene, path, code, out, err)
        tally.count(files, f"{scene.name}, line {at} (exit {code}: {err.strip()})", wrong)
        tally.details[said] += 1
    for scratch in ("week", "try", "made"):
        shutil.rmtree(folder / scratch, ignore_errors=True)
    return tally.outcome(
        "interrupts",
        "Ctrl-C at any line of a commit and of what follows it, in `logcl absorb` (into a memory, and into "
        "a new one) and in `logcl train`: the message matches the file, which is intact and can be "
        "written to",
    )


def _scenes(folder: Path, week: Path) -> list[Scene]:
    path = folder / "made" / "m.logcl"
    for arguments in (("absorb", path, week / "task0.npz", *_QUICK), ("train", path, *_EPOCH)):
        code, _, err = start(folder / "made" / "said", *arguments).finish()
        if code:
            raise RuntimeError(f"the memory could not be made: {err}")
        if arguments[0] == "absorb":
            untrained = path.read_bytes()

    def one(memory: Path, tasks: Path) -> list[object]:
        return ["absorb", memory, tasks / "task1.npz"]

    return [
        Scene("absorb", one, "commit", untrained),
        Scene("absorb into a new memory", lambda m, t: [*one(m, t), *_QUICK], "commit", None),
        Scene("first train", lambda m, _: ["train", m, *_EPOCH], "write_classifier", untrained),
        Scene(
            "train again",
            lambda m, _: ["train", m, "--seed", 5, *_EPOCH],
            "write_classifier",
            path.read_bytes(),
        ),
    ]


_EPOCH = ("--set", "classifier.epochs=1", "--set", "classifier.min_steps=0")


def _prepared(scene: Scene, folder: Path) -> Path:
    place = folder / "try"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    path = place / "m.logcl"
    if scene.before is not None:
        path.write_bytes(scene.before)
    return path


def _run(scene: Scene, at: int, path: Path, week: Path) -> tuple[int, str, str]:
    interrupt = Interrupt(scene.function, at)
    return start(path.parent / "said", *scene.command(path, week), interrupt=interrupt).finish()


def _lines(scene: Scene, folder: Path, week: Path) -> int:
    """How many lines there are to interrupt."""
    path = _prepared(scene, folder)
    code, _, err = _run(scene, _NEVER, path, week)
    if code:
        raise RuntimeError(f"{scene.name} failed without an interrupt: {err}")
    return int((path.parent / "said" / "lines").read_text())


def _judged(scene: Scene, path: Path, code: int, out: str, err: str) -> tuple[str, str]:
    """What is wrong ("" if nothing), and what the command said."""
    memory = Memory(path)
    before = path.with_name("before.logcl")
    if scene.before is not None:
        before.write_bytes(scene.before)
    try:
        is_in = _content(memory) != _content(Memory(before))
        problems = memory.verify() if memory.file.exists() else []
        with memory.file.writing():
            pass
    except LogCLError as error:
        return f"{type(error).__name__}: {error}", "nothing readable"
    if problems or code not in (0, 130) or "Traceback" in err:
        return f"exit {code}: {problems} {err}", "an error"
    if code == 0:
        return ("" if is_in else "reported as done, but not in"), "done before the interrupt"
    claims = {
        "interrupted, and it is in": re.search(r"tasks up to 1 are in|has the new classifier", err),
        "interrupted, and nothing changed": re.search(
            r"is as it was before|no memory was created|keeps its previous|has no classifier yet", err
        ),
    }
    said = [claim for claim, found in claims.items() if found] or ["interrupted"]
    if "no memory was created" in err and path.exists():
        return "there is a memory", said[0]
    if "has no classifier yet" in err and scene.name != "first train":
        return "there was a classifier", said[0]
    if "keeps its previous" in err and scene.name == "first train":
        return "there was no classifier", said[0]
    expected = {"interrupted, and it is in": True, "interrupted, and nothing changed": False}.get(
        said[0], is_in
    )
    return ("" if is_in == expected else f"says otherwise: {err}"), said[0]


def _content(memory: Memory) -> tuple[str, bytes | None] | None:
    if not memory.file.exists():
        return None
    return memory.digest, memory.file.read_classifier()
