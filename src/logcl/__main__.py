"""Entry point of the `logcl` command and of `python -m logcl`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; Ctrl-C leaves with exit code 130, whatever it interrupts."""
    try:
        from logcl.cli import main as run

        run()
    except KeyboardInterrupt:
        print("logcl: interrupted before anything was changed", file=sys.stderr)
        _leave()
    except SystemExit as leaving:
        if leaving.code != 130:
            raise
        _leave()


def _leave() -> None:
    # Not sys.exit: Python remembers an interrupt that hit generated code (dataclasses, while torch is being
    # imported) and would end by a signal, although the interrupt was handled.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    main()
