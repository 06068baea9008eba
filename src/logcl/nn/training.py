"""The training loop: codecs, labellers, the global model and all rival methods are trained by `fit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn

from logcl.core.errors import LogCLError
from logcl.core.progress import Moment, Progress, Silent
from logcl.core.settings import Recipe
from logcl.nn.device import choose_device
from logcl.nn.fit_state import State, captured, restored
from logcl.nn.muon import Muon
from logcl.nn.timing import Pace

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


class Diverged(LogCLError):
    """The loss became infinite or NaN."""

    exit_code = 2


@dataclass(frozen=True)
class Work:
    """What a training run needs besides data: its random generator and where to report progress."""

    generator: torch.Generator
    progress: Progress = field(default_factory=Silent)
    description: str = "training"
    keep: Callable[[int, int, State], None] | None = None
    """Called after every epoch but the last with its number, the number of epochs and the state of the fit;
    may raise to stop."""
    resume: Mapping[str, Tensor] | None = None
    """A state that `keep` received, to continue as if the fit had never stopped; ignored if it is invalid."""
    pace: Pace | None = None
    """How fast the fit is, if that was measured: it is told, and the schedule ends in the time there is."""

    def part(self, name: str) -> Work:
        """The same work with `name` appended to its description."""
        return replace(self, description=f"{self.description}, {name}")

    @contextmanager
    def counting(self, steps: int) -> Iterator[Callable[[int], None]]:
        """A bar: what is counted beyond the steps is ignored, and what is missing is counted at the end."""
        left = steps
        with self.progress.track(self.description, steps) as advance:

            def count(done: int) -> None:
                nonlocal left
                advance(min(done, left))
                left -= min(done, left)

            yield count
            count(left)


def fit(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    count: int,
    recipe: Recipe,
    work: Work,
    *,
    at_once: int | None = None,
    after_step: Callable[[], None] | None = None,
) -> float:
    """Minimise `loss` over shuffled batches of the rows 0 to count - 1.

    `loss` takes the rows of one batch (an int64 tensor on the CPU) and returns a scalar, a mean over them.
    `at_once`: rows of a batch that it is given at a time; a batch of large images may take half a minute, and
    each part of it moves the bar. `after_step` is called after each update of the weights, before their
    gradients are cleared.

    The same generator state gives the same weights. Returns the mean loss of the last interval of the
    schedule and leaves the network in evaluation mode.
    """
    per_epoch = steps_per_epoch(recipe, count)
    optimiser = new_optimiser(network, recipe)
    schedule = _Schedule(recipe, total_steps(recipe, count), per_epoch)
    network.train()
    total = torch.zeros(())
    mean, since, done, note = math.nan, 0, 0, ""
    with seeded(work.generator), ExitStack() as stack:
        if work.resume and (numbers := restored(work.resume, network, optimiser, schedule, work.generator)):
            done, since, mean = int(numbers[0]), int(numbers[1]), numbers[2]
            total = torch.tensor(numbers[3])
        if work.pace is not None:
            schedule.limit(done, work.pace.most(count, per_epoch))
            whole = total_steps(recipe, count)
            said = work.pace.sentence(count, per_epoch, done, schedule.end, whole)
            work.progress.say(f"{work.description}: {said}")
        steps = schedule.end - done
        advance = stack.enter_context(work.progress.track(work.description, steps))
        for step, rows in enumerate(_batches(count, recipe, steps, work.generator), start=done + 1):
            rate = recipe.learning_rate * schedule.factor(step)
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.zero_grad(set_to_none=True)
            # In parts of almost equal size: batch normalisation needs more than a sample or two.
            *parts, last = rows.chunk(-(-len(rows) // (at_once or len(rows))))
            value = torch.zeros(())
            for part in parts:  # gradients of parts add up to those of the batch
                value += _backward(loss, part, len(rows))
                advance(1 / (len(parts) + 1), note=note)
            total += value + _backward(loss, last, len(rows))
            optimiser.step()
            if after_step is not None:
                after_step()
            if step % schedule.interval == 0 or step == schedule.end:
                mean = averaged(float(total) / (step - since))
                total, since = torch.zeros(()), step
                if not math.isfinite(mean):
                    raise Diverged(
                        f"{work.description}: the loss became {mean} after {step} steps; lower learning_rate "
                        f"(now {recipe.learning_rate})"
                    )
                found = {"loss": mean, "learning_rate": rate}
                work.progress.log(Moment(work.description, step, schedule.end, found))
                schedule.observe(step, mean)
            note = "" if math.isnan(mean) else f"loss {mean:.4g}"
            advance(1 / (len(parts) + 1), note=note)
            if step == schedule.end:
                advance(done + steps - step)  # completes the bar if training stops early
                break
            if work.keep is not None and step % per_epoch == 0:
                numbers = [step, since, mean, float(total), *schedule.numbers()]
                state = captured(numbers, network, optimiser, work.generator)
                work.keep(step // per_epoch, -(-schedule.end // per_epoch), state)
    network.eval()
    return mean


def _backward(loss: Callable[[Tensor], Tensor], part: Tensor, batch: int) -> Tensor:
    """Add the gradients of a part of a batch; returns its share of the batch's loss."""
    share = loss(part) * (len(part) / batch)
    share.backward()
    return share.detach().cpu()


def averaged(mean: float) -> float:
    """The mean over all processes that train this network, so that all of them stop at the same step."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return mean
    total = torch.tensor(mean, dtype=torch.float64, device=choose_device())
    distributed.all_reduce(total)
    return float(total) / distributed.get_world_size()


def steps_per_epoch(recipe: Recipe, count: int) -> int:
    """Batches per epoch: the nearest whole number, so that no small batch is left over."""
    return max(round(count / recipe.batch_size), 1)


def shortened(recipe: AnyRecipe, share: float) -> AnyRecipe:
    """The recipe of a warm start: a `share` of the epochs and steps."""
    return recipe.model_copy(
        update={"epochs": max(round(recipe.epochs * share), 1), "min_steps": round(recipe.min_steps * share)}
    )


def total_steps(recipe: Recipe, count: int) -> int:
    """Optimiser steps of a fit: all epochs, or `min_steps` if that is more."""
    return max(recipe.epochs * steps_per_epoch(recipe, count), recipe.min_steps)


def _batches(count: int, recipe: Recipe, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """`steps` batches: each epoch is a new permutation, cut into parts of nearly equal size.

    Nearly equal, because the batch statistics of one or two leftover rows would be noise.
    """
    parts = steps_per_epoch(recipe, count)
    queue: list[Tensor] = []
    for _ in range(steps):
        if not queue:
            queue = list(torch.randperm(count, generator=generator).tensor_split(parts))
        yield queue.pop()


def new_optimiser(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser that a recipe asks for, before its first step."""
    parameters = list(network.parameters())
    fused = parameters[0].device.type in ("cpu", "cuda")
    common: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay, "fused": fused}
    if recipe.optimiser == "adam":
        return torch.optim.AdamW(parameters, **common)
    if recipe.optimiser == "muon":
        return Muon(parameters, recipe.momentum, **common)
    return torch.optim.SGD(parameters, momentum=recipe.momentum, nesterov=recipe.momentum > 0, **common)


class _Schedule:
    """The learning rate of each step as a fraction of the highest, and the last step."""

    def __init__(self, recipe: Recipe, steps: int, steps_per_epoch: int) -> None:
        self.recipe, self.steps_per_epoch = recipe, steps_per_epoch
        self.end = steps
        self.interval = max(steps_per_epoch, steps // 20)
        """Steps over which the loss is averaged: an epoch of few samples is too noisy."""
        self._planned = steps
        self._cooling: tuple[int, float] | None = None
        self._best, self._stale = math.inf, 0

    def factor(self, step: int) -> float:
        """Fraction of the highest learning rate at steps 1, 2, ..."""
        if self._cooling is not None:
            since, factor = self._cooling
            return factor * (1 - (step - since) / (self.end - since + 1))
        if self.recipe.schedule == "one-cycle":
            # Linearly up from 1/25 in the first quarter, then down to zero along a cosine.
            rise = max(self._planned // 4, 1)
            if step <= rise:
                return 0.04 + 0.96 * (step - 1) / rise
            fall = (step - 1 - rise) / max(self._planned - rise, 1)
            return 0.5 + 0.5 * math.cos(math.pi * min(fall, 1.0))
        if self.recipe.schedule == "exponential":
            return self.recipe.decay ** ((step - 1) // self.steps_per_epoch)
        return 1.0

    def numbers(self) -> list[float]:
        """What `take` needs to continue."""
        return [self.end, self._planned, self._best, self._stale, *(self._cooling or (math.nan, math.nan))]

    def take(self, step: int | float, numbers: Sequence[float]) -> bool:
        """Continue after `step` with the `numbers` of another schedule; False if they make no sense."""
        end, planned, best, stale, since, factor = numbers
        cools = math.isnan(since) or (since <= step and 0 < factor <= 1)
        if not (step < end <= planned <= self._planned and cools):
            return False
        self.end, self._planned, self._best, self._stale = int(end), int(planned), best, int(stale)
        self._cooling = None if math.isnan(since) else (int(since), factor)
        return True

    def limit(self, step: int, most: int | None) -> None:
        """Take at most this many steps after `step`: the whole schedule faster, or what is left of it."""
        if most is None or self.end - step <= most:
            return
        if step:
            self._cooling, self.end = (step, self.factor(step)), step + max(most, 1)
        else:
            self._planned = self.end = max(most, 1)

    def observe(self, step: int, loss: float) -> None:
        """Start to cool down when the loss has not fallen for `patience` intervals."""
        if loss < self._best - 0.01 * abs(self._best) or math.isinf(self._best):
            self._best, self._stale = loss, 0
            return
        self._stale += 1
        if self.recipe.patience and self._stale >= self.recipe.patience and self._cooling is None:
            self._cooling = step, self.factor(step)
            self.end = min(step + max(step // 4, 1), self._planned)


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Seed torch's global state, from which initial weights and dropout are drawn, and restore it afterwards.

    This also covers networks written by users.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def generator_for(*key: int) -> torch.Generator:
    """A separate generator for each key, so that results do not depend on the order or place of work."""
    state = np.random.SeedSequence([part % 2**64 for part in key]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 ^ int(state[1]))
