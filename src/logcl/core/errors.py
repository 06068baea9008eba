"""Errors with a cause that the user can act on.

Each message is one sentence that names the file or value and says what to do. The command line prints it
to stderr and exits with the class's `exit_code`; Python callers catch `LogCLError` or a subclass.
"""

from __future__ import annotations

from logcl.core.text import printable


class LogCLError(Exception):
    """Base of all errors that LogCL raises deliberately."""

    exit_code = 1

    def __str__(self) -> str:
        """The message; names of files and classes in it cannot control a terminal."""
        return printable(super().__str__())


class BadInput(LogCLError, ValueError):
    """Images or labels that cannot be absorbed or classified; nothing was changed."""

    exit_code = 2


class BadSettings(LogCLError, ValueError):
    """Settings that contradict each other, do not exist, or do not match the memory."""

    exit_code = 2


class DataError(LogCLError):
    """A data set or image file that is missing, truncated or not what it claims to be."""

    exit_code = 3


class NotAMemory(LogCLError):
    """A path that does not exist or is not a memory."""

    exit_code = 4


class NewerFormat(NotAMemory):
    """A memory written by a later version of LogCL."""


class Damaged(LogCLError):
    """A memory whose content fails its digests or consistency checks."""

    exit_code = 5


class Busy(LogCLError):
    """Another process is writing to the memory."""

    exit_code = 6


class CannotWrite(LogCLError):
    """The disk is full, or there is no permission to write the file or folder."""

    exit_code = 7


class NotTrained(LogCLError):
    """A prediction was requested before a classifier was trained."""

    exit_code = 8


class EngineFailed(LogCLError):
    """The cluster cannot be reached, or kept losing the workers of a job."""

    exit_code = 9


class LogCLWarning(UserWarning):
    """Base of all warnings; the command line prints them as one sentence."""


class PassedOver(LogCLWarning):
    """Files that look like input but are skipped."""


class NotReported(LogCLWarning):
    """Work that is committed, although a callback or log that was to report it failed."""


class Poor(LogCLWarning):
    """Images that are replayed with a lower quality than was asked for."""


class Contradictory(LogCLWarning):
    """Identical images with different labels."""
