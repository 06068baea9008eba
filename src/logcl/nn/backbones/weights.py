"""Weights of backbones: files of them, their digest, and copies of those that came from files."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from logcl.core.errors import DataError
from logcl.core.files import cache_folder, write_atomically
from logcl.core.text import printable

_COUNTER = "num_batches_tracked"
_WRAPPERS = ("state_dict", "model", "model_state", "net")  # where checkpoints keep their tensors


def digest(network: nn.Module) -> str:
    """SHA-256 of all weights and statistics, by name.

    Without the steps that batch normalisation counted in training: some files have them and others do not.
    """
    found = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        if name.endswith(_COUNTER):
            continue
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def read(file: Path) -> dict[str, Tensor]:
    """The tensors of a file of weights; nothing in it is run."""
    try:
        if file.suffix == ".safetensors":
            return safetensors.torch.load_file(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickles, which are about to be refused
            found: Any = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist; give a file with the weights of the backbone") from error
    except Exception as error:  # whatever is raised for a file that is something else
        reason = printable(" ".join(str(error).split())[:150])
        raise DataError(
            f"{file} holds no weights that can be read ({reason}); give .safetensors or .pth"
        ) from error
    for _ in _WRAPPERS:  # a forged one may contain itself
        inner = [found[key] for key in _WRAPPERS if isinstance(found, Mapping) and key in found]
        found = next((each for each in inner if isinstance(each, Mapping)), found)
    return dict(_only_tensors(found, file))


def _only_tensors(found: Any, file: Path) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(found, Mapping):
        raise DataError(f"{file} holds no weights by name; give the state_dict of the backbone")
    for key, value in found.items():
        if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized:
            yield str(key).removeprefix("module."), value  # of a network trained on several devices


def fill(network: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> None:
    """Load weights; those of a head, which is not used, may be there or not."""
    wanted = network.state_dict()
    wrong = [
        key for key, value in wanted.items()
        if (tensors[key].shape != value.shape if key in tensors else value.is_floating_point())
    ]  # fmt: skip
    if wrong:
        raise DataError(
            f"{file} does not hold the weights of this backbone: {len(wrong)} of {len(wanted)} are missing "
            f"or of another shape, e.g. {printable(wrong[0])}; give the file of this very model"
        )
    network.load_state_dict({**wanted, **{key: tensors[key] for key in wanted if key in tensors}})


def place(weights: str) -> Path:
    """Where weights that came from a file are kept, so that later commands need no file."""
    return cache_folder() / "backbones" / f"{weights}.safetensors"


def keep(network: nn.Module, weights: str) -> None:
    """Keep a copy of a network's weights, by their digest."""
    file = place(weights)
    if not file.exists():
        tensors = {name: value.contiguous() for name, value in network.state_dict().items()}
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, safetensors.torch.save(tensors))
