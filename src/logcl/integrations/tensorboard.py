"""A callback for TensorBoard (`pip install 'logcl[tensorboard]'`): a curve for each value of each work.

Classifier.train(memory, callbacks=[TensorBoardLog("runs/pets")])
"""

from __future__ import annotations

import os
from types import TracebackType

from logcl.core.errors import BadSettings, CannotWrite
from logcl.core.progress import Moment


class TensorBoardLog:
    """Writes event files to a folder; `tensorboard --logdir` shows them while the job runs.

    A piece of work that comes again, as a level that is retrained, goes on where its curve ended.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise BadSettings(
                "tensorboard is not installed; run pip install 'logcl[tensorboard]' or log to a .csv file"
            ) from error
        try:
            self._writer = SummaryWriter(os.fspath(folder))
        except OSError as error:
            raise CannotWrite(f"{folder} cannot be written ({error.strerror}); choose another") from error
        self._begun: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def __call__(self, moment: Moment) -> None:
        """Add a point to each curve, and write it out."""
        what = moment.what
        last = self._last.get(what, 0)
        if moment.step <= last - self._begun.get(what, 0):
            self._begun[what] = last
        at = self._last[what] = self._begun.get(what, 0) + moment.step
        for name, value in moment.values.items():
            self._writer.add_scalar(f"{what}/{name}", value, at)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file; a log that is not closed loses nothing."""
        self._writer.close()

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
