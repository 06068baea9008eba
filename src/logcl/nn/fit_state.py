"""The state of a fit after an epoch: what it takes to continue as if it had never stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from logcl.nn.device import choose_device

State = dict[str, Tensor]
"""Everything that the rest of a fit depends on, as tensors on the CPU."""


class Schedule(Protocol):
    """What `training.fit` knows about the steps to come."""

    steps_per_epoch: int

    def take(self, step: float, numbers: Sequence[float]) -> bool:
        """Continue after `step` with these numbers; False if they make no sense."""


def captured(
    numbers: Sequence[float], network: nn.Module, optimiser: torch.optim.Optimizer, generator: torch.Generator
) -> State:
    """Copies of weights, moments and random states, and `numbers`, the first of which is the step."""
    found = {f"network.{name}": value for name, value in network.state_dict().items()}
    for place, slots in optimiser.state_dict()["state"].items():
        found |= {f"optimiser.{place}.{name}": value for name, value in slots.items() if value is not None}
    state = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in found.items()
    }
    state["numbers"] = torch.tensor(numbers, dtype=torch.float64)
    state |= {"random.own": generator.get_state(), "random.cpu": torch.get_rng_state()}
    return state | ({"random.cuda": torch.cuda.get_rng_state()} if choose_device().type == "cuda" else {})


def restored(
    state: Mapping[str, Tensor],
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    schedule: Schedule,
    generator: torch.Generator,
) -> list[float] | None:
    """Restore a `captured` state and return its numbers; None, with nothing changed, if it does not match."""
    weights: State = {}
    slots: dict[int, State] = {}
    parameters = optimiser.param_groups[0]["params"]
    own = {f"network.{name}": value for name, value in network.state_dict().items()}
    try:
        for name, value in state.items():
            kind, _, rest = name.partition(".")
            if kind == "network":
                weights[rest] = _like(own.pop(name), value)
            elif kind == "optimiser":
                place, _, slot = rest.partition(".")
                model = torch.zeros(()) if slot == "step" else parameters[int(place)].detach()
                slots.setdefault(int(place), {})[slot] = _like(model, value)
        for name in ("random.own", "random.cpu"):
            torch.Generator().set_state(state[name])
        numbers: list[float] = state["numbers"].tolist()
        step, since, _, _, *planned = numbers
        if (
            own
            or not 0 <= since <= step
            or step % schedule.steps_per_epoch
            or not schedule.take(step, planned)
        ):
            return None
    except (LookupError, ValueError, TypeError, RuntimeError):
        return None
    network.load_state_dict(weights)
    optimiser.load_state_dict({**optimiser.state_dict(), "state": slots})
    generator.set_state(state["random.own"])
    torch.set_rng_state(state["random.cpu"])
    if "random.cuda" in state and choose_device().type == "cuda":
        torch.cuda.set_rng_state(state["random.cuda"])
    return numbers


def _like(model: Tensor, value: Tensor) -> Tensor:
    """The value in the memory format of the model, which fused optimisers rely on."""
    if (model.shape, model.dtype) != (value.shape, value.dtype):
        raise ValueError("a tensor of another shape or type")
    return torch.empty_like(model).copy_(value)
