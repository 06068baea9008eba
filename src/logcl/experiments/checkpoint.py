"""Where an interrupted experiment resumes: its state after the last finished task, in one file.

A checkpoint is a safetensors file with a description and a digest: reading it runs no code, and damage is
detected. Its fingerprint covers everything that determines a result, so that a run never resumes from the
checkpoint of a different one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from logcl.core.errors import CannotWrite, Damaged
from logcl.core.files import write_atomically
from logcl.core.settings import Frozen
from logcl.experiments.result import Row, TaskRecord
from logcl.methods import State
from logcl.methods.logcl import MEMORY
from logcl.nn import blobs
from logcl.streams import Stream

NAME = "checkpoint.safetensors"
_PRESENTATION = ("cli", "experiments/bench", "experiments/report", "experiments/table")
"""Code that cannot change a result."""

Earlier = Literal["continue", "continue or replace", "replace"]
"""What to do with a run in the folder: resume it (or refuse, or replace it if it is another run), or replace
it in any case."""


class Occupied(CannotWrite):
    """The folder holds something that the run cannot resume from, and that must not be deleted unasked."""


class Checkpoint(Frozen):
    """What has been measured so far, beside the state of the method."""

    fingerprint: str
    records: tuple[TaskRecord, ...] = ()
    matrix: tuple[Row, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)
    """By phase, as measured by a `Clock`."""
    digest: str = ""
    """SHA-256 of the checkpoint without this digest."""


def write(folder: Path, about: Checkpoint, state: State) -> None:
    """Replace the checkpoint of a run folder."""
    digest = hashlib.sha256(blobs.pack(about, state)).hexdigest()
    write_atomically(folder / NAME, blobs.pack(about.model_copy(update={"digest": digest}), state))


def read(folder: Path) -> tuple[Checkpoint, State] | None:
    """The checkpoint of a run folder, None if there is none; `Occupied` if it is damaged."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        about, state = blobs.unpack(path.read_bytes(), Checkpoint, str(path))
        content = blobs.pack(about.model_copy(update={"digest": ""}), state)
        if hashlib.sha256(content).hexdigest() != about.digest:
            raise Damaged(str(path))
    except Damaged as error:
        what = "is damaged or was written by another version of LogCL; add --overwrite to start over, or"
        raise Occupied(f"{path} {what} choose another --out") from error
    except OSError as error:
        raise Occupied(f"{path} cannot be read ({error.strerror}); choose another --out") from error
    return about, state


def resume(folder: Path, fingerprint: str, earlier: Earlier) -> tuple[Checkpoint, State] | None:
    """The checkpoint to resume from; None for a new run, once the folder has nothing of another run."""
    memory = folder / MEMORY
    if earlier != "replace":
        try:
            found = read(folder)
            if found is None and memory.exists():
                raise Occupied(
                    f"{memory} exists from an earlier run; choose another --out or add --overwrite"
                )
            if found is not None and found[0].fingerprint != fingerprint:
                raise Occupied(
                    f"the run in {folder} was started with other settings, data or code; add --overwrite to "
                    "start over, or choose another --out"
                )
            return found
        except Occupied:
            if earlier == "continue":
                raise
    remove(folder, MEMORY, f"{MEMORY}-journal", "result.json")
    return None


def remove(folder: Path, *others: str) -> None:
    """Remove other files and the checkpoint of a run folder, and partial ones that killed processes left."""
    try:
        for path in (*map(folder.joinpath, others), folder / NAME, *folder.glob(f".{NAME}.*.new")):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise CannotWrite(
            f"{error.filename} cannot be replaced ({error.strerror}); choose another --out"
        ) from error


def fingerprint(stream: Stream, choices: Mapping[str, Any]) -> str:
    """A digest of the data, the choices (anything JSON can hold) and the code of a run."""
    everything = {
        "stream": (stream.name, stream.subset, stream.classes),
        "data": _digest_of_data(stream),
        "code": _digest_of_code(),
        **choices,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def _digest_of_data(stream: Stream) -> str:
    """Of all tasks in order, and of the test set."""
    tasks = ((stream.source_x[rows], stream.source_y[rows]) for rows in stream.members)
    digest = hashlib.sha256()
    for pair in chain(tasks, [(stream.test_x, stream.test_y)]):
        for array in pair:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@cache  # a running process keeps the code it was started with, whatever happens to the files
def _digest_of_code() -> str:
    """Of the sources that affect a result: a commit would miss uncommitted changes."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith(_PRESENTATION):
            digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
