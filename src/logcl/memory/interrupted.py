"""A training of the global model that was interrupted: its last finished epoch, staged in the memory file.

Every commit deletes staged work, so a state never outlives the memory that it was trained on.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from pydantic import Field

from logcl.core.errors import Damaged, LogCLError
from logcl.core.settings import Frozen
from logcl.memory.file.header import CLASSIFIER
from logcl.memory.memory import Memory
from logcl.nn import blobs
from logcl.nn.fit_state import State

_WRITE_EVERY = 300.0
"""Seconds after which a state is written, in case the process is killed; an interrupt writes it at once."""


class Unfinished(Frozen):
    """The description stored with the state of a training that was interrupted."""

    memory: str = Field(max_length=64)
    """Digest of the memory."""
    training: str = Field(pattern="^[0-9a-f]{64}$")
    """Digest of what is trained and how: memory, initial weights, settings and randomness."""
    epoch: int = Field(ge=1, lt=2**62)
    """The last finished epoch."""
    epochs: int = Field(ge=1, lt=2**62)


@dataclass
class Keeper:
    """Keeps the last finished epoch of a training, and writes it to the file every few minutes."""

    memory: Memory
    digest: str
    """Of the memory that is replayed; no other one is written to."""
    training: str
    latest: tuple[Unfinished, State] | None = None
    written: float = 0.0

    def load(self) -> tuple[int, State | None]:
        """The last finished epoch of this training and its state; that of any other training is dropped."""
        self.written = time.monotonic()
        about, state = kept(self.memory)
        if about is not None and about.training == self.training:
            return about.epoch, state
        if about is not None:
            self.memory.file.unstage(CLASSIFIER)
        return 0, None

    def __call__(self, epoch: int, epochs: int, state: State) -> None:
        """Keep the state after this epoch."""
        about = Unfinished(memory=self.digest, training=self.training, epoch=epoch, epochs=epochs)
        self.latest = about, state
        if time.monotonic() - self.written >= _WRITE_EVERY:
            self.store()

    def store(self) -> None:
        """Write the latest state, unless the file cannot be written or holds another memory now."""
        if self.latest is None:
            return
        with suppress(LogCLError):
            header = self.memory.file.header()
            if header.content == self.digest:
                self.memory.file.stage(header, CLASSIFIER, blobs.pack(*self.latest))
        self.latest, self.written = None, time.monotonic()


def kept(memory: Memory) -> tuple[Unfinished | None, State | None]:
    """The state of an interrupted training on this memory; None if there is none, or if it is damaged."""
    blob = memory.file.staged().get(CLASSIFIER)
    if blob is None:
        return None, None
    try:
        return blobs.unpack(blob, Unfinished, "an interrupted training")
    except Damaged:
        return None, None  # it starts from scratch
