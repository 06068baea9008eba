"""Entry point of the `logcl` command and of `python -m logcl`."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _Output(io.FileIO):
    """Output to a pipe or file; what cannot be written is dropped, so that printing never stops a command."""

    failed: OSError | None = None
    """Why output was dropped; None if a pipe was closed early, as in `logcl inspect m.logcl | head`."""

    def write(self, data: Any, /) -> int:
        """Write the bytes, or drop them."""
        try:
            return super().write(data)
        except BrokenPipeError:
            pass
        except OSError as error:
            self.failed = error
        return memoryview(data).nbytes


def main() -> None:
    """Run the command line; Ctrl-C leaves with exit code 130, whatever it interrupts."""
    output, _ = _redirected("stdout"), _redirected("stderr")
    try:
        from logcl.cli import main as run

        run()
    except KeyboardInterrupt:
        print("logcl: interrupted", file=sys.stderr)
        _leave(130)
    except SystemExit as leaving:
        if output is not None:
            sys.stdout.flush()
        if output is not None and output.failed is not None:
            print(
                f"logcl: the output cannot be written ({output.failed.strerror}); the command itself ended "
                f"with exit code {leaving.code or 0}",
                file=sys.stderr,
            )
            _leave(7)
        if leaving.code == 130:
            _leave(130)
        raise


def _redirected(name: str) -> _Output | None:
    """Replace a standard stream that is not a terminal; escape what its encoding lacks."""
    stream = getattr(sys, name)
    if not isinstance(stream, io.TextIOWrapper):
        return None  # closed, or replaced by a caller
    stream.reconfigure(errors="backslashreplace")
    if stream.isatty():
        return None
    output = _Output(stream.fileno(), "w", closefd=False)
    buffered = io.BufferedWriter(output)
    new = io.TextIOWrapper(
        buffered, stream.encoding, stream.errors, line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )  # fmt: skip
    setattr(sys, name, new)
    return output


def _leave(code: int) -> None:
    # Not sys.exit: Python remembers an interrupt that hit generated code (dataclasses, while torch is being
    # imported) and would end by a signal, although the interrupt was handled.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
