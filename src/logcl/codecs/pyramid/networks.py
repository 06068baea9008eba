"""The networks that come with this package: they predict the integers of pyramids, and restore their images.

Every version stays in the package, because streams can only be read with the networks that wrote them.
`tools/train_pyramid.py` and `tools/train_restoration.py` trained them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from logcl.codecs.pyramid.predictor import Networks
from logcl.codecs.pyramid.restoration import Restoration

LATEST = 2
"""The version that new streams are written with."""


@functools.cache
def arrays(version: int) -> Mapping[str, NDArray[Any]]:
    """Weights by name."""
    content = files("logcl.codecs.pyramid").joinpath(f"networks-{version}.npz").read_bytes()
    with np.load(BytesIO(content)) as file:
        return {name: file[name] for name in file.files}


@functools.cache
def predictor(version: int, name: str) -> Networks:
    """The networks of one channel's coefficients."""
    return Networks.of(arrays(version), name)


@functools.cache
def restoration(version: int, channels: int) -> Restoration:
    """The network that removes the traces of quantisation."""
    name = f"restoration-{channels}."
    found = {
        key.removeprefix(name): torch.from_numpy(value.astype(np.float32))
        for key, value in arrays(version).items()
        if key.startswith(name)
    }
    with torch.device("meta"):  # random weights would draw from torch's global generator
        network = Restoration(channels)
    network.load_state_dict(found, assign=True)
    return network.requires_grad_(False).eval()
