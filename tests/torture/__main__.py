"""All trials at full length: python -m tests.torture [TRIAL ...] [--out FOLDER]

Writes one JSON file per trial; `make results` turns them into the table in docs/memory-file.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.torture import (
    after_commit,
    disk,
    first_writers,
    flips,
    fuzz,
    interrupts,
    kills,
    power,
    readers,
    resources,
)
from tests.torture.outcome import Outcome

SEED = 1
TRIALS: dict[str, Callable[[Path], Outcome]] = {
    "power": lambda folder: power.trial(None, SEED, folder),
    "disk": lambda folder: disk.trial(None, SEED, folder),
    "flips": lambda folder: flips.trial(None, SEED, folder),
    "kills": lambda folder: kills.trial(
        1000, SEED, folder, "mnist" if os.environ.get("LOGCL_DATA") else "digits"
    ),
    "readers": lambda folder: readers.trial(8, 5, folder),
    "first-writers": lambda folder: first_writers.trial(500, SEED, folder),
    "after-commit": lambda folder: after_commit.trial(500, SEED, folder),
    "interrupts": lambda folder: interrupts.trial(1000, SEED, folder),
    "files": lambda folder: fuzz.files(folder, seconds=600, seed=SEED),
    "images": lambda folder: fuzz.images(folder, seconds=600, seed=SEED),
    "resources": lambda folder: resources.trial(253, SEED, folder),
}


def main() -> None:
    """Run the trials named, or all; exit 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help=f"of {', '.join(TRIALS)}; all by default")
    parser.add_argument("--out", type=Path, default=Path("results/torture"), help="where the counts go")
    asked = parser.parse_args()
    unknown = [name for name in asked.trials if name not in TRIALS]
    if unknown:
        parser.error(f"there is no trial {unknown[0]}; choose from: {', '.join(TRIALS)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    lost = 0
    for name in asked.trials or TRIALS:
        folder = Path(tempfile.mkdtemp(prefix=f"torture-{name}-"))
        started = time.monotonic()
        outcome = TRIALS[name](folder)
        lost += outcome.lost
        record = asdict(outcome) | {
            "evidence": str(outcome.evidence) if outcome.evidence else None,
            "seconds": round(time.monotonic() - started),
            "sqlite": sqlite3.sqlite_version,
            "system": f"{platform.system()}, Python {platform.python_version()}",
        }
        (asked.out / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
        print(f"{name}: {outcome.tried} tried, {outcome.survived} survived, {outcome.lost} lost", flush=True)
        for what, count in outcome.details.items():
            print(f"    {what}: {count}")
        if outcome.evidence:
            print(f"    look at {outcome.evidence}")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
