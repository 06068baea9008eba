"""A forecast is what `allocation.plan` of every task gives, times the measured cost per sample."""

import math
import sqlite3
import sys
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl import allocation
from logcl.core.errors import BadSettings
from logcl.core.settings import parse_as
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.file.sqlite import PAGES
from logcl.memory.forecast.costs import Costs, pick_costs
from logcl.memory.forecast.forecast import DAY, MAX_FILE, MAX_ROW, Load, forecast, growth


def plans(start, stop, size, unit):
    """The plan of every task."""
    return [allocation.plan(*task, unit) for task in pairwise([*range(start, stop, size), stop])]


def samples_of(slots) -> int:
    return sum(slot.samples for slot in slots)


def simple_costs(**changes) -> Costs:
    """One second per sample fitted; replay takes next to nothing."""
    costs = pick_costs((3, 32, 32), "cosine")
    codec = {"fits": ((1, 1.0),), "decode_seconds": 1e-9, "sample_bytes": 100.0, "level_bytes": 0.0}
    return costs.model_copy(update={"codec": costs.codec.model_copy(update=codec | changes)})


def a_load(**changes) -> Load:
    usual = {"image_shape": (3, 32, 32), "samples": 10**6, "per_day": 1000, "per_task": 1000, "unit": 128}
    return parse_as(Load, usual | changes)


@given(
    start=st.integers(0, 5000),
    arrived=st.integers(1, 5000),
    size=st.integers(1, 700),
    unit=st.integers(1, 150),
)
def test_a_forecast_is_the_sum_of_its_plans(start, arrived, size, unit):
    n = start + arrived
    load = a_load(start=start, samples=n, per_day=size, per_task=size, unit=unit)
    found = forecast(load, simple_costs(decode_seconds=0.25))
    tasks = plans(start, n, size, unit)
    fitted = [samples_of(task.train) for task in tasks]
    seconds = [samples_of(task.train) + 0.25 * samples_of(task.retire) for task in tasks]
    assert found.tasks == len(tasks)
    assert found.encodings == pytest.approx(sum(fitted) / arrived)
    assert found.task_worst.samples == max(fitted)
    assert found.task_mean.samples == pytest.approx(np.mean(fitted))
    assert found.task_worst.core_seconds == pytest.approx(max(seconds))
    assert found.task_worst.seconds == pytest.approx(max(seconds))  # one core
    assert found.day_mean.core_seconds * found.days == pytest.approx(sum(seconds))
    assert found.day_worst.samples == max(fitted)  # one task per day
    assert found.levels == tuple(slot.level for slot in allocation.layout(n, unit))
    in_levels = samples_of(allocation.layout(n, unit))
    assert found.memory_bytes == pytest.approx(100 * in_levels + (n - in_levels) * 3072)
    held = sum(min(start + (number + 1) * size, n) for number in range(len(tasks)))
    assert found.one_model_encodings == pytest.approx(held / arrived)


def test_the_worst_day_of_many_tasks():
    found = forecast(a_load(samples=40_000, per_day=1000, per_task=10, unit=128), simple_costs())
    first = found.worst[0]
    day = plans(first, first + 1000, 10, 128)
    assert found.day_worst.samples == sum(samples_of(task.train) for task in day)
    assert found.day_worst.samples > found.task_worst.samples == 32_768


def test_encodings_grow_with_the_logarithm():
    """1,000 times the samples: five more encodings per sample; with one model, 1,000 times as many."""
    steps = growth(a_load(samples=2**10 * 10**6, per_task=1, per_day=1000, unit=1), simple_costs())
    assert [found.tasks for found in steps] == [1024000, 10240000, 102400000, 1024000000]
    encodings = [found.encodings for found in steps]
    assert np.diff(encodings) == pytest.approx([math.log2(10) / 2] * 3, abs=0.5)
    assert steps[-1].one_model_encodings / steps[0].one_model_encodings == pytest.approx(1000)


def test_levels_of_a_task_are_fitted_in_parallel():
    """0 to 7 samples in one task: levels 2, 1 and 0 take 4, 2 and 1 seconds."""

    def seconds(**machines) -> float:
        load = a_load(samples=7, per_day=7, per_task=7, unit=1, **machines)
        return forecast(load, simple_costs()).task_worst.seconds

    assert seconds(cores=1) == pytest.approx(7)
    assert seconds(cores=4) == pytest.approx(4)
    assert seconds(nodes=4, network=1000) == pytest.approx(4, rel=1e-3)


def test_pixels_and_levels_travel_between_nodes():
    load = a_load(samples=10**6, per_day=10**6, per_task=10**6)
    assert forecast(load, simple_costs()).task_worst.network_bytes == 0
    found = forecast(load.model_copy(update={"nodes": 64}), simple_costs()).task_worst
    assert found.network_bytes == pytest.approx(found.samples * (3072 + 100) * 63 / 64)
    slow = forecast(load.model_copy(update={"nodes": 64, "network": 1.0}), simple_costs()).task_worst
    assert slow.seconds - found.seconds == pytest.approx(found.network_bytes * 8 / 1e9 * 0.9)


def test_gradients_travel_in_a_ring():
    costs = simple_costs()
    found = forecast(a_load(nodes=64, cores=32, epochs=3, batch_size=100), costs).global_model
    assert found.samples == 3 * 10**6
    assert found.network_bytes == pytest.approx(30_000 * 2 * 63 / 64 * 4 * costs.classifier.weights)
    alone = forecast(a_load(cores=32, epochs=3), costs).global_model
    assert alone.network_bytes == 0
    assert alone.seconds == pytest.approx(alone.core_seconds / 32)


def test_busy_is_work_over_time():
    found = forecast(a_load(samples=10**5, per_day=100, per_task=100, unit=1), simple_costs())
    assert found.busy == pytest.approx(found.encodings * 100 / DAY, rel=0.02)
    fast = forecast(a_load(samples=10**5, per_day=10**5, per_task=100, unit=1), simple_costs())
    assert fast.busy > 1  # tasks queue up


def test_the_next_full_rebuild():
    found = forecast(a_load(samples=100_000), simple_costs())
    assert found.next_rebuild == 131_072  # 128 · 2^10
    assert allocation.layout(found.next_rebuild, 128)[0].samples == found.next_rebuild


def test_a_memory_too_small_for_a_level():
    found = growth(a_load(samples=100), simple_costs())[-1]
    assert found.levels == ()
    assert found.encodings == found.task_worst.samples == 0
    assert found.memory_bytes == 100 * 3072


@pytest.mark.parametrize(
    ("samples", "per_day", "per_task"),
    [(10**9, 10**6, 1000), (10**9, 10**6, 1), (2**61, 1, 1), (10**15, 10**9, 12345), (1, 1, 10**12)],
)
def test_any_load_takes_seconds(samples, per_day, per_task):
    started = time.process_time()
    growth(a_load(samples=samples, per_day=per_day, per_task=per_task), simple_costs())
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "wrong", [{"network": 0}, {"nodes": 0}, {"samples": 0}, {"per_task": 0}, {"unit": 0}]
)
def test_bad_loads_are_refused(wrong):
    with pytest.raises(BadSettings):
        a_load(**wrong)


def test_the_limits_are_those_of_sqlite(tmp_path):
    """Those of this SQLite, or stricter."""
    if sys.version_info >= (3, 11):
        assert sqlite3.connect(":memory:").getlimit(sqlite3.SQLITE_LIMIT_LENGTH) >= MAX_ROW
    file = MemoryFile(tmp_path / "m.logcl")
    file.create({})
    (pages,) = sqlite3.connect(file.path).execute("PRAGMA max_page_count").fetchone()
    assert pages * PAGES[0] >= MAX_FILE


@given(sample_bytes=st.floats(1, 10**7), level_bytes=st.floats(0, 10**6), unit=st.integers(1, 10**6))
def test_the_fullest_file_is_within_the_limits(sample_bytes, level_bytes, unit):
    costs = simple_costs(sample_bytes=sample_bytes, level_bytes=level_bytes)
    found = forecast(a_load(samples=10**9, per_task=10**9, unit=unit), costs)

    def row(samples):
        slots = allocation.layout(samples, unit)
        return slots[0].samples * sample_bytes + level_bytes if slots else 0

    most = found.file_samples
    assert row(most) <= MAX_ROW * (1 + 1e-9)
    assert most * sample_bytes <= MAX_FILE
    assert row(most + 1) > MAX_ROW * (1 - 1e-9) or (most + 1) * sample_bytes > MAX_FILE
    assert found.files == -(-(10**9) // max(most, 1))


def test_where_codes_are_copied_only_new_samples_are_encoded():
    costs = pick_costs((3, 32, 32), "image_file")
    codec, unit = costs.codec, 16
    load = Load(image_shape=(3, 32, 32), start=480, samples=960, per_day=480, per_task=480, unit=unit)
    found = forecast(load, costs)
    fitted = allocation.plan(480, 960, unit).train
    copies = sum(codec.fit_seconds(slot.samples) for slot in fitted)
    assert found.task_mean.core_seconds == pytest.approx(copies + 480 * codec.encode_seconds)
    assert found.task_mean.samples > 480
