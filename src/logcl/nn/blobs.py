"""Networks and arrays as one safetensors blob with a description, as the memory file stores them.

Reading a blob runs no code, and a network is built without weights first, so that a description which
claims absurd sizes fails against the tensors that are really there, before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from logcl.core.descriptions import LONGEST, About, damaged, described, description
from logcl.core.errors import BadInput, BadSettings
from logcl.core.settings import Frozen, Precision
from logcl.core.text import printable
from logcl.nn.device import choose_device

Spec = TypeVar("Spec")
Network = TypeVar("Network", bound=nn.Module)
_SCALE = ".scale"
_STORED = (torch.float16, torch.float32)  # types of stored weights, besides multiples of a scale


def pack(about: Frozen, tensors: Mapping[str, Tensor]) -> bytes:
    """One blob; equal content gives equal bytes."""
    text = about.model_dump_json()
    if len(text.encode()) > LONGEST:
        raise BadInput(f"a description of more than {LONGEST:,} bytes cannot be kept; have fewer classes")
    # One metadata key: safetensors does not promise an order among several.
    blob: bytes = safetensors.torch.save(dict(tensors), {"logcl": text})
    return blob


def load(blob: bytes, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description as plain data, and tensors; `Damaged` with the `name` of the blob if there are none."""
    try:
        tensors = safetensors.torch.load(blob)  # first: it refuses tensors that overlap or are not there
        return description(blob, name), tensors
    # The last two are what types and shapes raise that safetensors knows and torch does not.
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError, AttributeError) as error:
        raise damaged(name, error) from error


def unpack(blob: bytes, kind: type[About], name: str) -> tuple[About, dict[str, Tensor]]:
    """The inverse of `pack`; raises `Damaged` with the `name` of the blob."""
    data, tensors = load(blob, name)
    return described(kind, data, name), tensors


def weights(network: nn.Module, prefix: str, precision: Precision | None = None) -> dict[str, Tensor]:
    """The state of a network on the CPU, its weights rounded to `precision`, each name behind `prefix`.

    Buffers keep their type: variances of a batch normalisation may exceed what half precision holds. So do
    weights that exceed it.
    """
    found = {f"{prefix}.{name}": value.cpu().contiguous() for name, value in network.state_dict().items()}
    for name, _ in network.named_parameters():
        value = found[f"{prefix}.{name}"]
        if precision is None or not _fits(value):
            continue
        if precision == "int8" and value.dim() > 1:
            scale = _scale(value)
            found[f"{prefix}.{name}"] = (value / scale).round().to(torch.int8)
            found[f"{prefix}.{name}{_SCALE}"] = scale
        else:
            found[f"{prefix}.{name}"] = value.half()
    if strange := next((name for name, value in found.items() if not _finite(value)), None):
        raise BadSettings(f"training gave {strange} infinite or NaN values; use a lower learning rate")
    return found


def round_weights(network: nn.Module, precision: Precision) -> None:
    """Round weights to the precision of the file, so that replay is the same before and after a restart."""
    for weight in network.parameters():
        value = weight.data
        if not _fits(value):
            continue
        if precision == "int8" and value.dim() > 1:
            scale = _scale(value).float()
            weight.data = (value / scale).round() * scale
        else:
            weight.data = value.half().float()
    network.eval()


def _fits(weight: Tensor) -> bool:
    """Whether half precision holds all values; NaN and infinity are for `weights` to refuse."""
    return bool((weight.abs() <= torch.finfo(torch.float16).max).all())


def _scale(weight: Tensor) -> Tensor:
    """One step of each row, in half precision: the largest weight of a row is 127 steps."""
    rows = weight.abs().flatten(1).amax(dim=1).reshape(-1, *[1] * (weight.dim() - 1))
    return (rows / 127).half().clamp(min=torch.finfo(torch.float16).tiny)


def restore(
    build: Callable[[Spec], Network], spec: Spec, tensors: Mapping[str, Tensor], prefix: str, name: str
) -> Network:
    """The network that `build(spec)` describes, with the weights found behind `prefix`."""
    mine = _behind(prefix, tensors)
    try:
        with torch.device("meta"):
            network = build(spec)
        counters = {key for key, value in network.state_dict().items() if not value.is_floating_point()}
        state = {key: _restored(key, mine, key in counters) for key in mine if not key.endswith(_SCALE)}
        network.load_state_dict(state, strict=True, assign=True)
        if strange := next((key for key, value in state.items() if not _finite(value)), None):
            raise ValueError(f"{strange} has infinite or NaN values")
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        raise damaged(name, error) from error
    return network.eval().requires_grad_(False).to(choose_device())


def fill(network: nn.Module, tensors: Mapping[str, Tensor], prefix: str, name: str) -> None:
    """Load the weights found behind `prefix` into a network, which must be the one they came from."""
    check_finite(tensors, name)
    try:
        network.load_state_dict(_behind(prefix, tensors), strict=True)
    except RuntimeError as error:
        reason = printable(" ".join(str(error).split())[:200])
        raise BadInput(
            f"{name} does not fit the network given, a {type(network).__name__} ({reason})"
        ) from error


def check_finite(tensors: Mapping[str, Tensor], name: str) -> None:
    """Refuse infinite and NaN weights, also of a network that is not known here."""
    if strange := next((key for key, value in tensors.items() if not _finite(value)), None):
        raise damaged(name, ValueError(f"{strange} has infinite or NaN values"))


def _finite(value: Tensor) -> bool:
    if not value.is_floating_point():
        return True
    try:
        # torch has no `isfinite` for floats of eight bits.
        return bool((value if value.element_size() > 1 else value.float()).isfinite().all())
    except RuntimeError:
        return False  # of a type that torch cannot compute with


def _behind(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(f"{prefix}."): v for k, v in tensors.items() if k.startswith(f"{prefix}.")}


def _restored(key: str, mine: Mapping[str, Tensor], counter: bool) -> Tensor:
    """A tensor as the network has it. Integers other than counters are multiples of a scale, one per row."""
    value, scale = mine[key], mine.get(key + _SCALE)
    if (value.dtype == torch.int8) != (scale is not None):
        raise ValueError(f"{key} and its scale do not belong together")
    if scale is None:
        if value.dtype not in ((torch.int64,) if counter else _STORED):
            raise ValueError(f"{key} is of type {value.dtype}")
        return value if counter else value.float()
    if scale.shape != (*value.shape[:1], *[1] * (value.dim() - 1)) or scale.dtype != torch.float16:
        raise ValueError(f"{key} has a scale of another size")
    return value.float() * scale.float()
