"""How long a training takes: measured on this machine before it starts, and fitted to the time there is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from logcl.core.text import human_seconds

_FEW = 8  # images of the first try: at 224 pixels, a whole batch may take a minute
_LONG = 2.0  # seconds that the measurement may take, about
_SPARE = 0.05  # part of the time there is that is left for what was not measured


@dataclass(frozen=True)
class Pace:
    """The speed of a training, and the time there is for it."""

    per_sample: float
    """Seconds."""
    seconds: float | None = None
    """The time there is; None: as long as the recipe takes."""

    def most(self, count: int, per_epoch: int) -> int | None:
        """The steps for which there is time, whole epochs of `count` samples if there is time for one."""
        if self.seconds is None:
            return None
        steps = (1 - _SPARE) * self.seconds / (self.per_sample * count / per_epoch)
        if not steps < 2**62:
            return None
        whole = math.floor(steps)
        return max(whole - whole % per_epoch if whole >= per_epoch else whole, 1)

    def sentence(self, count: int, per_epoch: int, done: int, end: int, whole: int) -> str:
        """For people: steps `done` + 1 to `end` are to come, of a recipe with `whole` steps."""
        seconds = (end - done) * self.per_sample * count / per_epoch
        epochs, of = _figure((end - done) / per_epoch), _figure(whole / per_epoch)
        shown = epochs if epochs == of else f"{epochs} of {of}"
        return (
            f"takes about {human_seconds(seconds)}: {shown} epoch{'' if shown == '1' else 's'} of {count:,} "
            f"images, {_figure(1 / self.per_sample)} images per second"
        )


def _figure(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seconds_per_image(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    count: int,
    at_once: int,
    update: Callable[[], object] = lambda: None,
    batch: float = math.inf,
) -> float:
    """Measure forward and backward passes over a few of the rows 0 to count - 1, `at_once` at a time.

    `loss` is the one that will be trained with, and `update` the optimiser's step, which follows each `batch`
    of images. Weights, statistics and random states stay as they are.
    """
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()

    def measured(rows: Tensor) -> float:
        started = time.perf_counter()
        float(_backward(loss, rows))
        return (time.perf_counter() - started) / len(rows)

    with torch.random.fork_rng():
        few, all_at_once = (torch.arange(min(most, at_once, count)) for most in (_FEW, at_once))
        found = measured(few)  # also warms up
        rows = all_at_once if 2 * found * len(all_at_once) < _LONG else few
        if len(rows) > len(few):
            measured(rows)
        found = measured(rows)
        update()
        started = time.perf_counter()
        update()
        found += (time.perf_counter() - started) / batch
    network.zero_grad(set_to_none=True)
    network.load_state_dict(before)
    return found


def _backward(loss: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    value = loss(rows)
    value.backward()
    return value.detach().cpu()
