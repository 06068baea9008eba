"""Callbacks that keep what training finds on the way in a plain file; any function of a `Moment` is one too.

memory.absorb(images, labels, callbacks=[CSVLog("log.csv")])
Classifier.train(memory, callbacks=[JSONLinesLog("log.jsonl"), print])
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from logcl.core.errors import BadSettings, CannotWrite
from logcl.core.progress import Callback, Moment

__all__ = ["CSVLog", "Callback", "JSONLinesLog", "Moment", "log_to"]


class _Lines:
    """Adds lines to a file, each written at once, so that a killed job leaves whole ones."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def _add(self, text: str, heading: str = "") -> None:
        try:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write((heading if not file.tell() else "") + text)
        except OSError as error:
            raise CannotWrite(
                f"the log {self.path} cannot be written ({error.strerror}); choose another file"
            ) from error


class CSVLog(_Lines):
    """A line for each value: time, what, step, steps, name, value. Goes on behind what a file has already."""

    COLUMNS = ("time", "what", "step", "steps", "name", "value")

    def __call__(self, moment: Moment) -> None:
        """Add the lines of one moment."""
        rows = [
            (_now(), moment.what, moment.step, moment.steps, name, value)
            for name, value in moment.values.items()
        ]
        self._add(_as_csv(rows), _as_csv([self.COLUMNS]))


class JSONLinesLog(_Lines):
    """A JSON object a line: time, what, step, steps, and the values by their names."""

    def __call__(self, moment: Moment) -> None:
        """Add the line of one moment."""
        about = {"time": _now(), "what": moment.what, "step": moment.step, "steps": moment.steps}
        self._add(json.dumps({**about, **moment.values}) + "\n")


def log_to(place: str) -> Callback:
    """The log for a path: FILE.csv, FILE.jsonl, or a folder for TensorBoard."""
    path = Path(place)
    if path.suffix == ".csv":
        return CSVLog(path)
    if path.suffix in (".jsonl", ".ndjson"):
        return JSONLinesLog(path)
    if path.suffix and not path.is_dir():
        raise BadSettings(f"{place} is no log; give FILE.csv, FILE.jsonl or a folder for TensorBoard")
    from logcl.integrations.tensorboard import TensorBoardLog  # an extra, and slow to load

    return TensorBoardLog(path)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _as_csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
