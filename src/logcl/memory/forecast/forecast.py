"""What a memory would take: samples per day in; seconds, bytes and network traffic out.

The units held are a binary counter, and a task adds to it. If the counter goes from b to a, the task replays
the levels that are 1-bits of b and fits those that are 1-bits of a, up to the highest bit that changes. These
levels times the measured costs are the forecast; nothing is random and nothing is trained. The cluster is
that of `--engine ray`: one memory file, each level fitted on one core, the levels of a task in parallel,
pixels sent to the workers. docs/scale.md lists the assumptions.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from logcl import allocation
from logcl.core.settings import MOST_SAMPLES, Frozen, ImageShape
from logcl.memory.file.sqlite import PAGES
from logcl.memory.forecast.costs import Costs

Values = TypeVar("Values", float, NDArray[np.float64])
Counts = NDArray[np.int64]

DAY = 86_400
MAX_ENUMERATED = 2**20
"""Tasks that are planned one by one. Tasks no larger than a unit are counted in closed form instead."""
MAX_ROW = 10**9
"""Bytes of a level in the memory file: SQLite, as usually built, refuses longer rows."""
MAX_FILE = (2**30 - 1) * PAGES[0]
"""Bytes of a file of the smallest pages: SQLite before 3.45 allows 2^30 - 1, later ones four times that."""


class Load(Frozen):
    """The samples that arrive and the machines there are."""

    image_shape: ImageShape
    samples: int = Field(ge=1, lt=MOST_SAMPLES)
    """Held at the end."""
    start: int = Field(0, ge=0)
    """Held already; fewer than `samples`."""
    per_day: int = Field(ge=1, lt=MOST_SAMPLES)
    per_task: int = Field(ge=1, lt=MOST_SAMPLES)
    unit: int = Field(ge=1, le=2**40)
    nodes: int = Field(1, ge=1, le=10**6)
    cores: int = Field(1, ge=1, le=10**6)
    """Per node."""
    network: float = Field(10.0, gt=0)
    """Gbit/s in and out of each node."""
    epochs: int = Field(8, ge=1)
    batch_size: int = Field(128, ge=1)
    """Of the global model."""


class Work(Frozen):
    """What a task, a day or the training of the global model takes."""

    samples: float
    """Samples that go through training."""
    core_seconds: float
    """Replay and training on one core."""
    seconds: float
    """On all nodes, time on the network included."""
    network_bytes: float
    """Through the busiest node's link."""


class Forecast(Frozen):
    """What a load takes."""

    samples: int
    tasks: int
    days: float
    task_samples: int
    """Samples per task that were assumed, see `count_retraining`."""
    levels: tuple[int, ...]
    """Levels in use at the end, highest first."""
    memory_bytes: float
    raw_bytes: int
    encodings: float
    """Per sample that arrived, the first encoding included."""
    max_encodings: int
    """The lemma's bound, the first encoding included."""
    one_model_encodings: float
    """Per sample, if a single model of all samples were refitted for every task."""
    task_mean: Work
    task_worst: Work
    day_mean: Work
    day_worst: Work
    """The day that starts with the worst task."""
    busy: float
    """Fraction of the time spent absorbing; above 1, tasks queue up."""
    global_model: Work
    """Training it once, for all epochs: data-parallel, each batch divided among all cores."""
    worst: tuple[int, int]
    """Samples held before and after the worst task, the one that fits the most samples."""
    worst_levels: tuple[int, ...]
    """Levels that it fits."""
    worst_ram_bytes: float
    """Peak main memory of the process that absorbs it."""
    next_rebuild: int
    """Samples at which all levels are next merged into one."""
    file_samples: int
    """The most samples that one memory file can hold."""
    files: int
    """Memory files needed for all samples."""


class Retraining(NamedTuple):
    """All tasks that take a memory from one number of samples to another, grouped by the levels they fit."""

    fitted: Counts
    """Units fitted by each task of the group; the 1-bits are the levels."""
    replayed: Counts
    """Units replayed by each task of the group."""
    tasks: Counts
    """Tasks in the group."""
    worst: tuple[int, int]
    """Samples held before and after the first of the tasks that fit the most."""
    task_size: int
    """Samples per task in this count."""


def forecast(load: Load, costs: Costs) -> Forecast:
    """What `load` takes at these costs."""
    codec, unit, n = costs.codec, load.unit, load.samples
    arrived = n - load.start
    days, tasks = arrived / load.per_day, -(-arrived // load.per_task)
    retraining = count_retraining(load.start, n, load.per_task, unit)
    work = _work(retraining, load, costs)
    total = work @ retraining.tasks
    first, size = retraining.worst[0], retraining.task_size
    day_end = min(first + max(round(load.per_day / size), 1) * size, n)
    day = count_retraining(first, day_end, size, unit)
    worst_levels = allocation.plan(*retraining.worst, unit).train

    slots, image_bytes = allocation.layout(n, unit), math.prod(load.image_shape)
    memory_bytes = sum(slot.samples * codec.sample_bytes + codec.level_bytes for slot in slots)
    memory_bytes += n % unit * image_bytes
    units_per_row = int(max(MAX_ROW - codec.level_bytes, 0) / codec.sample_bytes) // unit
    most = (unit << units_per_row.bit_length()) - 1  # one more sample would need a level too long for a row
    file_samples = min(most, int(MAX_FILE / codec.sample_bytes))
    return Forecast(
        samples=n,
        tasks=tasks,
        days=days,
        task_samples=size,
        levels=tuple(slot.level for slot in slots),
        memory_bytes=memory_bytes,
        raw_bytes=n * image_bytes,
        encodings=(retraining.fitted.astype(object) @ retraining.tasks) * unit / arrived,
        max_encodings=allocation.max_generation(n, unit) + 1,
        one_model_encodings=(tasks * load.start + load.per_task * tasks * (tasks - 1) // 2) / arrived + 1,
        task_mean=_named(total / retraining.tasks.sum()),
        task_worst=_named(work.max(axis=1)),
        day_mean=_named(total / days),
        day_worst=_named(_work(day, load, costs) @ day.tasks),
        busy=float(total[2]) / (days * DAY),
        global_model=_global_model(load, costs),
        worst=retraining.worst,
        worst_levels=tuple(slot.level for slot in worst_levels),
        worst_ram_bytes=sum(slot.samples for slot in worst_levels) * codec.ram_bytes,
        next_rebuild=unit << (slots[0].level + 1 if slots else 0),
        file_samples=file_samples,
        files=-(-n // max(file_samples, 1)),
    )


def growth(load: Load, costs: Costs) -> list[Forecast]:
    """The forecast at a thousandth, a hundredth and a tenth of the samples, and at the end."""
    least = max(load.start + 1, load.unit)
    marks = [mark for part in (1000, 100, 10) if (mark := load.samples // part) >= least]
    return [forecast(load.model_copy(update={"samples": mark}), costs) for mark in (*marks, load.samples)]


def _work(retraining: Retraining, load: Load, costs: Costs) -> NDArray[np.float64]:
    """(4, groups): the fields of `Work` for one task of each group."""
    codec = costs.codec
    fits, longest, written = np.zeros((3, len(retraining.tasks)))
    for level in range(int(retraining.fitted.max()).bit_length()):
        samples, used = load.unit << level, retraining.fitted >> level & 1
        fits += used * codec.fit_seconds(samples)
        longest[used > 0] = codec.fit_seconds(samples)
        written += used * (samples * codec.sample_bytes + codec.level_bytes)
    fitted = retraining.fitted.astype(np.float64) * load.unit
    replayed = retraining.replayed.astype(np.float64) * load.unit
    raw, replay = fitted, replayed * codec.decode_seconds
    if codec.encode_seconds is not None:  # merged levels travel and arrive as they are
        raw, replay = fitted - replayed, np.zeros_like(replayed)
        fits += raw * codec.encode_seconds
        longest += raw * codec.encode_seconds
        written += replayed * codec.sample_bytes
    network, transfer = _sent(raw * math.prod(load.image_shape) + written, load)
    parallel = np.maximum(longest, fits / (load.nodes * load.cores))
    return np.stack([fitted, replay + fits, replay + parallel + transfer, network])


def _global_model(load: Load, costs: Costs) -> Work:
    seen = load.epochs * load.samples
    core_seconds = seen * (costs.classifier.train_seconds + costs.codec.fetch_seconds)
    # Ring all-reduce: per step each node sends 2 (N - 1) / N of the gradients, four bytes per weight.
    steps = max(seen // load.batch_size, 1)
    network, transfer = _sent(steps * 2 * 4.0 * costs.classifier.weights, load)
    seconds = core_seconds / (load.nodes * load.cores) + transfer
    return Work(samples=seen, core_seconds=core_seconds, seconds=seconds, network_bytes=network)


def _sent(count: Values, load: Load) -> tuple[Values, Values]:
    """Of `count` bytes, those that travel between nodes, and the seconds they take."""
    remote = count * (load.nodes - 1) / load.nodes
    return remote, remote / (load.network * 1e9 / 8)


def _named(values: NDArray[np.float64]) -> Work:
    return Work(**dict(zip(Work.model_fields, values.tolist(), strict=True)))


def count_retraining(start: int, stop: int, task_size: int, unit: int) -> Retraining:
    """Count the tasks of `task_size` samples, the last perhaps smaller, between `start` and `stop` samples.

    Exact, except for more than `MAX_ENUMERATED` tasks that are larger than a unit: those are counted as tasks
    of unit · 2^k samples for the largest such size that fits into one, which is more than half of it. The
    error is then less than one encoding per sample.
    """
    if task_size <= unit:
        return _in_closed_form(start, stop, task_size, unit)
    if stop - start <= task_size * MAX_ENUMERATED:
        return _one_by_one(start, stop, task_size, unit)
    level = (task_size // unit).bit_length() - 1
    found = _in_closed_form(start, stop, unit << level, unit << level)
    return found._replace(fitted=found.fitted << level, replayed=found.replayed << level)


def _in_closed_form(start: int, stop: int, task_size: int, unit: int) -> Retraining:
    """A task completes at most one unit; unit u makes it fit level z, the number of trailing zeros of u."""
    before, after = start // unit, stop // unit
    # Of the numbers 1..u, (u >> z) - (u >> z + 1) have exactly z trailing zeros.
    groups = [
        (1 << z, (1 << z) - 1, (after >> z) - (after >> z + 1) - (before >> z) + (before >> z + 1))
        for z in range((before ^ after).bit_length())
    ]
    groups.append((0, 0, -(-(stop - start) // task_size) - (after - before)))
    fitted, replayed, tasks = np.array([group for group in groups if group[2]], dtype=np.int64).T
    number = 1
    if after > before:
        zeros = int(fitted.max()).bit_length() - 1
        completed = ((before >> zeros) + 1) << zeros  # the first unit with that many trailing zeros
        number = -(-(completed * unit - start) // task_size)
    worst = start + (number - 1) * task_size, min(start + number * task_size, stop)
    return Retraining(fitted, replayed, tasks, worst, task_size)


def _one_by_one(start: int, stop: int, task_size: int, unit: int) -> Retraining:
    held = np.append(np.arange(start, stop, task_size, dtype=np.int64), np.int64(stop))
    units = held // unit
    before, after = units[:-1], units[1:]
    below = before ^ after
    for shift in (1, 2, 4, 8, 16, 32):
        below |= below >> shift  # sets every bit up to the highest that changed
    fitted, replayed = after & below, before & below
    first = int(fitted.argmax())
    worst = int(held[first]), int(held[first + 1])
    return Retraining(fitted, replayed, np.ones_like(fitted), worst, task_size)
