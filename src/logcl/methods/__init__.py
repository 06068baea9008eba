"""Continual-learning methods behind one protocol: `learn(task)`, `predict(x)`, `nbytes()`."""

from __future__ import annotations

from collections.abc import Callable

from logcl.errors import BadSettings
from logcl.methods.finetune import Finetune
from logcl.methods.joint import Joint
from logcl.methods.logcl import LogCL
from logcl.methods.protocol import HasLevels, Method, Problem, Replayed, Replays

__all__ = ["METHODS", "HasLevels", "Method", "Problem", "Replayed", "Replays", "create"]

METHODS: dict[str, Callable[[Problem], Method]] = {
    "logcl": LogCL,
    "finetune": Finetune,
    "joint": Joint,
}


def create(name: str, problem: Problem) -> Method:
    """The method called `name`, before its first task."""
    if name not in METHODS:
        raise BadSettings(f"there is no method {name!r}; choose one of: {', '.join(METHODS)}")
    return METHODS[name](problem)
