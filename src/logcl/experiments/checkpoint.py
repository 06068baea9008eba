"""Where an interrupted experiment goes on: its state after the last finished task, in one file.

A checkpoint is a safetensors file with a description, and its digest: reading it runs no code, and damage
is noticed. Its fingerprint stands for everything that decides a result, so that a run never goes on with
what another one began.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from logcl.core.errors import CannotWrite, Damaged
from logcl.core.files import write_atomically
from logcl.core.settings import Frozen
from logcl.experiments.result import Row, TaskRecord
from logcl.methods import State
from logcl.nn import blobs
from logcl.streams import Stream

NAME = "checkpoint.safetensors"
_METHOD = "method."
_SHOWING = (
    "cli",
    "experiments/bench",
    "experiments/report",
)  # above the experiment: they cannot change what it finds


class Occupied(CannotWrite):
    """A folder that holds what a run cannot go on with; nothing in it is replaced unasked."""


class Checkpoint(Frozen):
    """What an unbroken run would have at this moment, beside the state of its method."""

    fingerprint: str
    records: tuple[TaskRecord, ...] = ()
    matrix: tuple[Row, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)
    """By phase, as a `Clock` counts them."""
    digest: str = ""
    """SHA-256 of the checkpoint without this digest."""


def write(folder: Path, about: Checkpoint, state: State) -> None:
    """Replace the checkpoint of a run folder."""
    tensors = {_METHOD + name: value for name, value in state.items()}
    digest = hashlib.sha256(blobs.pack(about, tensors)).hexdigest()
    write_atomically(folder / NAME, blobs.pack(about.model_copy(update={"digest": digest}), tensors))


def read(folder: Path) -> tuple[Checkpoint, State] | None:
    """The checkpoint of a run folder, or None; `Occupied` if it is damaged."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        about, tensors = blobs.unpack(path.read_bytes(), Checkpoint, str(path))
        content = blobs.pack(about.model_copy(update={"digest": ""}), tensors)
        sound = hashlib.sha256(content).hexdigest() == about.digest
    except Damaged:
        sound = False
    except OSError as error:
        raise Occupied(f"{path} cannot be read ({error.strerror})") from error
    if not sound:
        raise Occupied(
            f"{path} is damaged or of another version of LogCL, so the run cannot go on; add --overwrite to "
            "begin again, or choose another --out"
        )
    return about, {name.removeprefix(_METHOD): value for name, value in tensors.items()}


def remove(folder: Path) -> None:
    """Remove the checkpoint of a run folder, and what a killed process left of one."""
    for path in (folder / NAME, *folder.glob(f".{NAME}.*.new")):
        path.unlink(missing_ok=True)


def fingerprint(stream: Stream, choices: Mapping[str, Any]) -> str:
    """Equal if the data, the choices (anything that JSON can hold) and the code of a run are equal."""
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


@cache  # a process goes on with the code that it began with
def _digest_of_code() -> str:
    """Of the sources that decide a result: a commit would not tell one changed checkout from another."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if not name.as_posix().startswith(_SHOWING):
            digest.update(f"{name.as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
