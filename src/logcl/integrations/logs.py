"""Callbacks that log training to CSV, JSON lines or TensorBoard; any function of a `Moment` works too.

memory.absorb(images, labels, callbacks=[CSVLog("log.csv")])
Classifier.train(memory, callbacks=[JSONLinesLog("log.jsonl"), TensorBoardLog("runs/pets"), print])
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

__all__ = ["CSVLog", "Callback", "JSONLinesLog", "Moment", "TensorBoardLog", "log_to"]


class _LineLog:
    """Appends each moment to a file in one write, so that a killed job leaves complete lines."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._append("")  # a place that cannot be written is refused now, not after an hour of training

    def _append(self, text: str, header: str = "") -> None:
        try:
            if self.path.is_fifo():
                raise CannotWrite(f"the log {self.path} is a pipe, which waits for a reader; choose a file")
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write((header if not file.tell() else "") + text)
        except OSError as error:
            raise CannotWrite(
                f"the log {self.path} cannot be written ({error.strerror}); choose another file"
            ) from error


class CSVLog(_LineLog):
    """One row per value: time, what, step, steps, name, value. Appends to an existing file."""

    COLUMNS = ("time", "what", "step", "steps", "name", "value")

    def __call__(self, moment: Moment) -> None:
        """Append the values of one moment."""
        about = (_now(), moment.what, moment.step, moment.steps)
        self._append(_as_csv([(*about, *item) for item in moment.values.items()]), _as_csv([self.COLUMNS]))


class JSONLinesLog(_LineLog):
    """One JSON object per moment: time, what, step, steps and the values by name. Appends to a file."""

    def __call__(self, moment: Moment) -> None:
        """Append one moment."""
        about = {"time": _now(), "what": moment.what, "step": moment.step, "steps": moment.steps}
        self._append(json.dumps({**about, **moment.values}) + "\n")


class TensorBoardLog:
    """One TensorBoard curve per value (`pip install 'logcl[tensorboard]'`), flushed after every moment.

    Work that is repeated, such as retraining a level, continues its curve where it ended.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # an extra, and slow to import
        except ImportError as error:
            raise BadSettings(
                "tensorboard is not installed; run pip install 'logcl[tensorboard]' or log to a .csv file"
            ) from error
        try:
            self._writer = SummaryWriter(os.fspath(folder))
        except OSError as error:
            raise CannotWrite(
                f"the log {folder} cannot be written ({error.strerror}); choose another folder"
            ) from error
        self._offset: dict[str, int] = {}  # steps of earlier runs, by work
        self._last: dict[str, int] = {}

    def __call__(self, moment: Moment) -> None:
        """Add a point to each curve and flush."""
        what = moment.what
        last = self._last.get(what, 0)
        if moment.step <= last - self._offset.get(what, 0):
            self._offset[what] = last
        step = self._last[what] = self._offset.get(what, 0) + moment.step
        for name, value in moment.values.items():
            self._writer.add_scalar(f"{what}/{name}", value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file; nothing is lost without it."""
        self._writer.close()

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def log_to(target: str) -> Callback:
    """The log for a path: FILE.csv, FILE.jsonl, or a folder for TensorBoard."""
    path = Path(target)
    if path.suffix == ".csv":
        return CSVLog(path)
    if path.suffix in (".jsonl", ".ndjson"):
        return JSONLinesLog(path)
    if path.suffix and not path.is_dir():
        raise BadSettings(
            f"{target} has no known log format; give FILE.csv, FILE.jsonl or a folder for TensorBoard"
        )
    return TensorBoardLog(path)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _as_csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
