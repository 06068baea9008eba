"""Everything that can go wrong for a reason the user can act on.

Each message is one sentence that names the file or value and says what to do. The command line prints it
on stderr and leaves with the class's `exit_code`; a Python caller catches `LogCLError` or one of these.
"""

from __future__ import annotations


class LogCLError(Exception):
    """Base of all errors that LogCL raises on purpose."""

    exit_code = 1


class BadInput(LogCLError, ValueError):
    """Images or labels that cannot be absorbed or classified; nothing was changed."""

    exit_code = 2


class BadSettings(LogCLError, ValueError):
    """Settings that contradict each other, do not exist, or do not fit the memory."""

    exit_code = 2


class DataError(LogCLError):
    """A data set or image file that is missing, truncated or not what it claims to be."""

    exit_code = 3


class NotAMemory(LogCLError):
    """A path that is absent, or holds something else than a memory."""

    exit_code = 4


class NewerFormat(NotAMemory):
    """A memory written by a later version of LogCL."""


class Damaged(LogCLError):
    """A memory whose content does not match its digests or its own rules."""

    exit_code = 5


class Busy(LogCLError):
    """Another process is writing to the memory."""

    exit_code = 6


class CannotWrite(LogCLError):
    """The disk is full, or the file or folder may not be written."""

    exit_code = 7


class NotTrained(LogCLError):
    """A prediction was asked for before anything was learned."""

    exit_code = 8


class EngineFailed(LogCLError):
    """The cluster that work was sent to cannot be reached, or lost it again and again."""

    exit_code = 9


class PassedOver(UserWarning):
    """Files that look as if they were meant, but are not read."""
