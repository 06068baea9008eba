"""A list beside a memory of the experiences in it: a run that is begun again must not absorb one twice.

A memory does not say where one task ended and which samples it was given. The list does, with a line of JSON
before an experience is absorbed and one after: `{"start": 0, "stop": 300, "digest": "…", "held": false}`.
Nobody but such runs needs it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logcl.core.errors import CannotWrite


class Experience(NamedTuple):
    """Samples that came together: 0-based position of the first in the memory, and behind the last."""

    start: int
    stop: int
    digest: str
    """Of images, labels and their order."""
    held: bool
    """False until the memory has taken them."""


class Experiences:
    """The list of one memory. Several processes may read it and add to it."""

    def __init__(self, memory: Path) -> None:
        self.path = memory.with_name(f"{memory.name}.experiences")
        self._read = 0  # bytes
        self._held: list[Experience] = []
        self._begun: Experience | None = None

    def find(self, digest: str, n: int) -> Experience | None:
        """The experience with this digest, if a memory of n samples holds it."""
        return next((found for found in self.held(n) if found.digest == digest), None)

    def held(self, n: int) -> list[Experience]:
        """The experiences that a memory of n samples holds, oldest first."""
        self._read_on()
        found = [experience for experience in self._held if experience.stop <= n]
        begun = self._begun
        # Killed after the memory had taken it, before that was noted? Then it is the last one in it.
        if begun is not None and begun.stop == n and (not found or found[-1].stop <= begun.start):
            found.append(begun)
        return found

    def add(self, experience: Experience) -> None:
        """Note one, safe from a power loss."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                # On a line of its own, even if the one before was torn.
                file.write(f"\n{json.dumps(experience._asdict())}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CannotWrite(f"{self.path} cannot be written ({error.strerror})") from error

    def _read_on(self) -> None:
        """Take in the lines that were added since the last time."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < self._read:
            self._read, self._held, self._begun = 0, [], None  # it is another one now
        if size == self._read:
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        for line in data.splitlines():
            experience = _parse(line)
            if experience is None:
                continue
            if not experience.held:
                self._begun = experience
                continue
            # What began here or later is not in the memory any more: it was put back to an earlier state.
            while self._held and self._held[-1].stop > experience.start:
                self._held.pop()
            self._held.append(experience)


def _parse(line: bytes) -> Experience | None:
    """None for a line that was torn when the power failed, or is somebody else's."""
    try:
        values = json.loads(line)
        return Experience(
            int(values["start"]), int(values["stop"]), str(values["digest"]), values["held"] is True
        )
    except (ValueError, KeyError, TypeError):
        return None


def digest(pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> str:
    """Stands for these samples in this order."""
    found = hashlib.sha256(repr(pixels.shape).encode())
    found.update(labels.astype("<i8").tobytes())
    found.update(np.ascontiguousarray(pixels).data)
    return found.hexdigest()
