"""What a memory would take that is too large to try: samples a day in, seconds, bytes and traffic out.

`carries` says which levels every task retrains, `costs` what a sample costs; this multiplies the two. Nothing
here is random, and nothing is trained. docs/scale.md lists what is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logcl import allocation
from logcl.memory.file.sqlite import PAGE
from logcl.memory.forecast.carries import Carries, carries
from logcl.memory.forecast.costs import Costs
from logcl.memory.forecast.forecast import Forecast, Load, Retraining, Spread, Today, Way, Ways, WorstTask

DAY = 86_400
MOST_PART = 10**9
"""Bytes of a part of the memory file: SQLite, as it is usually built, refuses longer rows."""
MOST_PAGES = 2**30 - 1
"""Pages of the file, as SQLite before 3.45 has it; later ones allow four times as many."""

Floats = NDArray[np.float64]


def simulate(load: Load, costs: Costs) -> Forecast:
    """Everything that follows from a load and its costs."""
    codec, unit = costs.codec, load.unit
    counted = carries(load.start, load.samples, load.per_task, unit)
    work = _work(counted, load, costs)
    seconds = work.seconds
    slots = allocation.layout(load.samples, unit)
    buffered = load.samples % unit
    top = slots[0].samples if slots else 0
    memory_bytes = (
        (load.samples - buffered) * codec.sample_bytes
        + len(slots) * codec.level_bytes
        + buffered * load.values
    )
    encoded = counted.units_fitted() * unit
    came = load.samples - load.start
    first, _ = counted.worst
    in_a_day = max(round(load.per_day / counted.size), 1)
    worst_day = carries(first, min(first + in_a_day * counted.size, load.samples), counted.size, unit)
    ways = _ways(counted, work, load, costs)
    next_carry = unit << (slots[0].level + 1 if slots else 0)
    tasks = load.tasks
    all_held = tasks * load.start + load.per_task * tasks * (tasks + 1) // 2
    all_held -= load.start + tasks * load.per_task - load.samples  # the last task may be smaller
    whole = codec.fit_seconds(load.samples) + load.samples * codec.decode_seconds
    return Forecast(
        tasks=tasks,
        days=load.days,
        task_samples=counted.size,
        levels=tuple(slot.level for slot in slots),
        top_samples=top,
        top_bytes=top * codec.sample_bytes + codec.level_bytes * bool(slots),
        memory_bytes=memory_bytes,
        raw_bytes=load.samples * load.values,
        encoded=encoded,
        encodings=encoded / came,
        most_reencodings=allocation.max_generation(load.samples, unit),
        task_encoded=_spread(counted.trained.astype(np.float64) * unit, counted.tasks),
        task_seconds=_spread(seconds, counted.tasks),
        day_encoded=encoded / load.days,
        day_seconds=float(seconds @ counted.tasks) / load.days,
        worst_day_encoded=worst_day.units_fitted() * unit,
        worst_day_seconds=float(_work(worst_day, load, costs).seconds @ worst_day.tasks),
        worst=_worst(counted, load, costs, ways.shares),
        next_carry=next_carry,
        next_carry_days=(next_carry - load.samples) / load.per_day,
        ways=ways,
        one_model_encodings=all_held / came,
        one_model_day_seconds=whole * load.per_day / load.per_task,
        retraining=_retraining(load, costs, costs.batch_size),
        retraining_wide=_retraining(load, costs, costs.batch_size * load.nodes),
        today=_today(load, costs, memory_bytes),
    )


def growth(load: Load, costs: Costs, decades: int = 3) -> list[Forecast]:
    """The same memory on its way: at a thousandth, a hundredth and a tenth of its samples, and at the end."""
    marks = [load.samples // 10**k for k in range(decades, 0, -1)]
    marks = [mark for mark in marks if mark > load.start and mark >= load.unit]
    return [simulate(load.model_copy(update={"samples": mark}), costs) for mark in (*marks, load.samples)]


@dataclass(frozen=True)
class _Work:
    """What each kind of task takes, in seconds of one core."""

    fits: Floats
    longest: Floats
    """The fit of its highest level."""
    replay: Floats
    models: Floats
    """How many levels it fits."""

    @property
    def seconds(self) -> Floats:
        return self.fits + self.replay


def _work(counted: Carries, load: Load, costs: Costs) -> _Work:
    fits, longest, models = (np.zeros(len(counted.tasks)) for _ in range(3))
    for level in range(int(counted.trained.max()).bit_length()):
        seconds = costs.codec.fit_seconds(load.unit << level)
        fitted = counted.trained >> level & 1
        fits += seconds * fitted
        longest[fitted > 0] = seconds
        models += fitted
    replay = counted.retired.astype(np.float64) * (load.unit * costs.codec.decode_seconds)
    return _Work(fits, longest, replay, models)


def _ways(counted: Carries, work: _Work, load: Load, costs: Costs) -> Ways:
    codec, nodes = costs.codec, load.nodes
    trained, retired = (units.astype(np.float64) * load.unit for units in (counted.trained, counted.retired))
    written = trained * codec.sample_bytes + work.models * codec.level_bytes
    came = min(counted.size, load.samples - load.start)
    images = np.full(len(trained), came * float(load.values))
    alone = work.seconds if nodes == 1 else work.replay + work.longest
    divided = work.seconds / (nodes * load.cores)

    def way(compute: Floats, traffic: Floats, disk: Floats) -> Way:
        traffic = load.elsewhere * traffic
        seconds = compute + traffic / load.link + disk / costs.file.commit_rate + costs.file.commit_seconds
        return Way(
            traffic=float(traffic @ counted.tasks) / load.days,
            worst_traffic=float(traffic[counted.trained.argmax()]),
            seconds=_spread(seconds, counted.tasks),
            busy=float(seconds @ counted.tasks) / (load.days * DAY),
        )

    return Ways(
        today=way(alone, trained * load.values + written, written),
        codes=way(divided, retired * codec.sample_bytes + images + written, written),
        shares=way(divided, images, written / nodes),
    )


def _worst(counted: Carries, load: Load, costs: Costs, way: Way) -> WorstTask:
    before, after = counted.worst
    plan = allocation.plan(before, after, load.unit)
    encoded = sum(slot.samples for slot in plan.train)
    replayed = sum(slot.samples for slot in plan.retire)
    fits = [costs.codec.fit_seconds(slot.samples) for slot in plan.train]
    waiting = int(way.seconds.worst / DAY * load.per_day)
    return WorstTask(
        before=before,
        after=after,
        day=(after - load.start) / load.per_day,
        levels=tuple(slot.level for slot in plan.train),
        encoded=encoded,
        seconds=sum(fits) + replayed * costs.codec.decode_seconds,
        ram_bytes=encoded * costs.codec.ram_bytes,
        disk_bytes=after * costs.codec.sample_bytes * costs.file.commit_disk,
        waiting=waiting,
    )


def _retraining(load: Load, costs: Costs, batch: int) -> Retraining:
    model = costs.classifier
    seen = costs.passes * load.samples
    steps = max(seen // batch, 1)
    core_seconds = seen * (model.pass_seconds + costs.codec.fetch_seconds)
    # A ring: every node sends and receives all gradients twice, but for its own share; four bytes each.
    node_bytes = steps * 2 * load.elsewhere * 4 * model.weights
    return Retraining(
        steps=steps,
        batch=batch,
        core_seconds=core_seconds,
        seconds=core_seconds / (load.nodes * load.cores) + node_bytes / load.link,
        node_bytes=node_bytes,
    )


def _today(load: Load, costs: Costs, memory_bytes: float) -> Today:
    codec = costs.codec
    a_level = int(max(MOST_PART - codec.level_bytes, 0) // codec.sample_bytes)
    top_level = (a_level // load.unit).bit_length() - 1
    level_samples = (load.unit << top_level + 1) - 1
    file_samples = int(MOST_PAGES * PAGE // codec.sample_bytes)
    held = min(level_samples, file_samples, load.samples)
    worst = load.unit << allocation.max_generation(held, load.unit)
    return Today(
        top_level=top_level,
        level_samples=level_samples,
        file_samples=file_samples,
        files=-(-load.samples // max(min(level_samples, file_samples), 1)),
        ram_bytes=worst * codec.ram_bytes,
        load_seconds=memory_bytes / costs.file.load_rate,
    )


def _spread(values: Floats, tasks: NDArray[np.int64]) -> Spread:
    order = np.argsort(values)
    ranked, reached = values[order], np.cumsum(tasks[order])

    def at(share: float) -> float:
        return float(ranked[np.searchsorted(reached, share * reached[-1])])

    mean = float(values @ tasks) / int(reached[-1])
    return Spread(median=at(0.5), mean=mean, high=at(0.99), worst=float(ranked[-1]))
