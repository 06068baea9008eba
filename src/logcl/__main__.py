"""Where the command starts, also as `python -m logcl`: light, so that Ctrl-C is answered at once."""

from __future__ import annotations

import sys


def main() -> None:
    """Load the command line, which takes a second or two, and run it."""
    try:
        from logcl.cli import main as run

        run()
    except KeyboardInterrupt:
        print("logcl: interrupted before anything was changed", file=sys.stderr)
        sys.exit(130)
    finally:
        # An interrupt that hit code made from a string, as dataclasses are while torch loads, is remembered
        # by Python and ends the process by a signal, though it was handled. Other such code makes it forget.
        exec("")


if __name__ == "__main__":
    main()
