"""The device that networks run on."""

from __future__ import annotations

import os

import torch

from logcl.core.errors import BadSettings


def choose_device() -> torch.device:
    """LOGCL_DEVICE (cpu, cuda, cuda:1, mps), by default the fastest device available.

    Not a setting of the memory, because the same file is used on machines with and without an accelerator.
    """
    name = os.environ.get("LOGCL_DEVICE") or "auto"
    if name == "auto":
        accelerators = (("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available()))
        name = next((name for name, present in accelerators if present), "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadSettings(
            f"the device {name!r} cannot be used here; set LOGCL_DEVICE to cpu or auto"
        ) from error
    return device
