"""Which software and hardware an experiment ran on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch


def versions() -> dict[str, str]:
    """Of Python and the packages that affect a result."""
    packages = {name: version(name) for name in ("logcl", "torch", "numpy", "safetensors")}
    return {"python": platform.python_version(), **packages}


def hardware() -> dict[str, str | int]:
    """Processor, cores, threads in use, operating system."""
    processor = platform.processor() or platform.machine()
    if sys.platform == "linux":
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
        processor = names[0].split(":", 1)[1].strip() if names else processor
    return {
        "processor": processor,
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
    }


def commit() -> str | None:
    """Commit of the checkout this code runs from, with a + after local changes; None if it is installed."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True)
        if tracked.returncode:
            return None
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "."], capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None  # git is not installed
    return head.stdout.strip() + ("+" if changed.returncode else "")
