"""The report of a trial: how often it tried to lose a memory, and how often it succeeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_KEPT = 10  # folders of evidence


@dataclass(frozen=True)
class Outcome:
    """The count of one trial. A loss is counted, not raised, so that a trial always runs to its end."""

    trial: str
    """Short name."""
    what: str
    """One sentence: what was done to the memory, and what was left out."""
    tried: int
    survived: int
    """Afterwards the memory was exactly the one before or the one after the step, and verified."""
    lost: int
    """All others."""
    details: Mapping[str, int] = field(default_factory=dict)
    """Further counts."""
    evidence: Path | None = None
    """A folder with the files of the first losses and what was wrong with them; None without losses."""


@dataclass
class Tally:
    """The counts of a trial while it runs."""

    folder: Path
    """Where the evidence goes, under `lost`."""
    tried: int = 0
    lost: int = 0
    details: Counter[str] = field(default_factory=Counter)

    def count(self, files: Mapping[str, bytes], where: str, wrong: str) -> None:
        """Count one attempt: the files it left, what was done, what is wrong with them ("" if nothing)."""
        self.tried += 1
        self.lost += bool(wrong)
        if wrong and self.lost <= _KEPT:
            place = self.folder / "lost" / f"{self.lost:02d}"
            place.mkdir(parents=True)
            for name, data in files.items():
                (place / name).write_bytes(data)
            (place / "why.txt").write_text(f"{where}: {wrong}\n")

    def outcome(self, trial: str, what: str) -> Outcome:
        """The report."""
        evidence = self.folder / "lost" if self.lost else None
        return Outcome(
            trial, what, self.tried, self.tried - self.lost, self.lost, dict(self.details), evidence
        )
