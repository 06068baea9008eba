"""Training the global model as a job for an engine: on one process, or on a shard of the samples in each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from logcl.core.errors import BadInput
from logcl.core.progress import Progress
from logcl.core.settings import ClassifierSettings
from logcl.core.sharding import Shard
from logcl.memory.featured import seen
from logcl.memory.snapshot import Snapshot
from logcl.nn.classification import batch_loss, train_on
from logcl.nn.device import choose_device
from logcl.nn.fit_state import State
from logcl.nn.timing import Pace, seconds_per_image
from logcl.nn.training import Work, averaged, generator_for, new_optimiser, steps_per_epoch

_MOST_MINUTES = 1_000_000  # two years


def check_minutes(minutes: float | None) -> None:
    """Refuse a time in which nothing can be learned."""
    if minutes is not None and not 0 < minutes <= _MOST_MINUTES:
        raise BadInput(f"minutes is {minutes!r}; give a number above 0, at most {_MOST_MINUTES:,}")


def learn(
    now: Snapshot,
    network: nn.Module,
    settings: ClassifierSettings,
    start: Tensor,
    resume: State | None,
    keep: Callable[[int, int, State], None] | None,
    at_once: int | None,
    spare: int,
    minutes: float | None,
    tell: bool,
    shard: Shard,
    progress: Progress,
) -> dict[str, Tensor]:
    """Train a network on one process's shard of the samples; returns its weights.

    start: state of the random generator. resume, keep: see `Work`. at_once: see `train_on`. spare: bytes that
    decoded images may take. minutes: the time there is; None: as long as the settings take. tell: whether to
    tell how long it will take.

    Each process decodes only its own samples. Gradients are averaged over processes after every batch, and
    the batch size is divided among them.
    """
    begun = time.monotonic()
    generator = torch.Generator()
    generator.set_state(start)
    if shard.rank:
        generator = generator_for(int(torch.randint(2**62, (), generator=generator)), shard.rank)
    network.to(choose_device())
    trained = nn.parallel.DistributedDataParallel(network) if shard.count > 1 else network
    if shard.rank >= now.n:
        shard = Shard(shard.rank % now.n, shard.count)  # more processes than samples
    mine = now.live[shard.positions(now.n)]
    # Every process must take the same number of steps: a smaller shard repeats one of its samples.
    count = -(-now.n // shard.count)
    settings = settings.model_copy(update={"batch_size": max(round(settings.batch_size / shard.count), 1)})
    fits = count * math.prod(now.settings.image_shape) <= spare
    cache = now.everything(progress, shard) if fits else None

    def fetch(rows: Tensor) -> tuple[Tensor, Tensor]:
        chosen = rows.numpy() % len(mine)
        x, y = (cache[0][chosen], cache[1][chosen]) if cache else now.fetch(mine[chosen])
        return seen(x, now.settings.backbone), torch.from_numpy(y)

    pace = None
    if tell or minutes is not None:
        part = min(at_once or settings.batch_size, settings.batch_size)

        def loss(rows: Tensor) -> Tensor:
            return batch_loss(network, *fetch(rows), settings)

        update, batch = new_optimiser(network, settings).step, count / steps_per_epoch(settings, count)
        speed = averaged(seconds_per_image(network, loss, count, part, update, batch))
        left = None if minutes is None else averaged(60 * minutes - (time.monotonic() - begun))
        pace = Pace(speed, left)  # of all processes, which must take the same number of steps
    work = Work(generator, progress, "global model", keep, resume, pace)
    train_on(trained, fetch, count, settings, work, at_once)
    return {name: value.cpu() for name, value in network.state_dict().items()}
