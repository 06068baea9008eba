"""Forecasts are what `allocation.plan` of every task would give, times what a sample was measured to cost."""

import importlib.util
import math
import sqlite3
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl import allocation
from logcl.core.errors import BadSettings
from logcl.core.settings import parse_as
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.forecast.carries import carries
from logcl.memory.forecast.costs import CodecCosts, Costs, costs_of, measured
from logcl.memory.forecast.forecast import Load
from logcl.memory.forecast.simulation import DAY, MOST_PAGES, MOST_PART, growth, simulate
from logcl.memory.presets import preset
from logcl.memory.settings import override

ROOT = Path(__file__).parents[3]


def tasks_of(start, stop, size):
    """Samples before and after every task."""
    ends = [*range(start, stop, size), stop]
    return list(pairwise(ends))


def plain(**changes) -> Costs:
    """A second to fit a sample, nothing else costs much."""
    costs = costs_of(preset("fast", (3, 32, 32)))
    codec = {"fits": ((1, 1.0),), "decode_seconds": 1e-9, "sample_bytes": 100.0, "level_bytes": 0.0}
    return costs.model_copy(update={"codec": costs.codec.model_copy(update=codec | changes)})


def load(**changes) -> Load:
    usual = {"image_shape": (3, 32, 32), "samples": 10**6, "per_day": 1000, "per_task": 1000, "unit": 128}
    return parse_as(Load, usual | changes)


@given(
    start=st.one_of(st.just(0), st.integers(0, 10**6)),
    came=st.integers(1, 3000),
    size=st.integers(1, 400),
    unit=st.integers(1, 200),
)
def test_tasks_are_counted_as_allocation_plans_them(start, came, size, unit):
    counted = carries(start, start + came, size, unit)
    planned, most, worst = Counter(), -1, None
    for before, after in tasks_of(start, start + came, size):
        change = allocation.plan(before, after, unit)
        trained = sum(1 << slot.level for slot in change.train)
        planned[trained, sum(1 << slot.level for slot in change.retire)] += 1
        if trained > most:
            most, worst = trained, (before, after)
    found = Counter()
    for trained, retired, tasks in zip(counted.trained, counted.retired, counted.tasks, strict=True):
        found[int(trained), int(retired)] += int(tasks)
    assert found == planned
    assert counted.worst == worst
    assert counted.size == size
    assert counted.units_fitted() == sum(trained * tasks for (trained, _), tasks in planned.items())


@given(power=st.integers(0, 50), unit=st.integers(1, 1000))
def test_single_samples_are_counted_however_many_they_are(power, unit):
    """2^p units, a sample at a time: each is encoded once, and then at every other carry above it."""
    counted = carries(0, unit << power, 1, unit)
    assert counted.units_fitted() * 2 == (power + 2) << power
    assert counted.worst == ((unit << power) - 1, unit << power)
    assert int(counted.tasks.sum()) == unit << power


@given(
    start=st.integers(0, 10**6),
    tasks=st.integers(60, 4000),
    unit=st.integers(1, 50),
    ratio=st.floats(1.02, 60),
)
def test_more_tasks_than_can_be_looked_at_are_right_to_within_a_fit_a_sample(start, tasks, unit, ratio):
    size = max(int(unit * ratio), unit + 1)
    exact = carries(start, start + size * tasks, size, unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("logcl.memory.forecast.carries.MOST_TASKS", 50)
        rough = carries(start, start + size * tasks, size, unit)
    assert size / 2 < rough.size <= size
    assert abs(rough.units_fitted() - exact.units_fitted()) * unit < size * tasks


@given(
    start=st.integers(0, 5000), came=st.integers(1, 5000), size=st.integers(1, 700), unit=st.integers(1, 150)
)
def test_a_forecast_is_the_sum_of_its_plans(start, came, size, unit):
    asked = load(start=start, samples=start + came, per_day=size, per_task=size, unit=unit)
    costs = plain(decode_seconds=0.25)
    found = simulate(asked, costs)
    plans = [allocation.plan(*task, unit) for task in tasks_of(start, start + came, size)]
    fitted = [sum(slot.samples for slot in plan.train) for plan in plans]
    replayed = [sum(slot.samples for slot in plan.retire) for plan in plans]
    seconds = [own + 0.25 * old for own, old in zip(fitted, replayed, strict=True)]
    assert found.tasks == len(plans)
    assert found.encoded == sum(fitted)
    assert found.task_encoded.worst == found.worst.encoded == max(fitted)
    assert found.task_encoded.median == sorted(fitted)[(len(fitted) - 1) // 2]
    assert found.task_encoded.mean == pytest.approx(np.mean(fitted))
    assert found.day_seconds * found.days == pytest.approx(sum(seconds))
    assert found.task_seconds.worst == pytest.approx(max(seconds))
    assert found.worst_day_encoded == max(fitted)  # a task a day
    assert found.levels == tuple(slot.level for slot in allocation.layout(start + came, unit))
    held = sum(slot.samples for slot in allocation.layout(start + came, unit))
    assert found.memory_bytes == pytest.approx(100 * held + (start + came - held) * 3072)
    everything = sum(after for _, after in tasks_of(start, start + came, size))
    assert found.one_model_encodings == pytest.approx(everything / came)


def test_a_day_of_many_tasks():
    """The day that begins with the worst task, task by task."""
    asked = load(samples=40_000, per_day=1000, per_task=10, unit=128)
    found = simulate(asked, plain())
    first = found.worst.before
    day = [allocation.plan(*task, 128) for task in tasks_of(first, first + 1000, 10)]
    assert found.worst_day_encoded == sum(slot.samples for plan in day for slot in plan.train)
    assert found.worst_day_encoded > found.worst.encoded == 32_768


def test_the_logarithm():
    """A thousand times the samples: five encodings more for each; with one model a thousand times more."""
    on_the_way = growth(load(samples=2**10 * 10**6, per_task=1, per_day=1000, unit=1), plain())
    assert [found.tasks for found in on_the_way] == [1024000, 10240000, 102400000, 1024000000]
    encodings = [found.encodings for found in on_the_way]
    assert np.diff(encodings) == pytest.approx([math.log2(10) / 2] * 3, abs=0.5)
    assert on_the_way[-1].one_model_encodings / on_the_way[0].one_model_encodings == pytest.approx(1000)


def test_one_machine_sends_nothing_and_more_machines_are_faster():
    asked = load(samples=10**6, per_day=10**4, per_task=10**4)
    alone = simulate(asked, plain()).ways
    assert [way.traffic for way in (alone.today, alone.codes, alone.shares)] == [0, 0, 0]
    assert alone.today.seconds == alone.codes.seconds == alone.shares.seconds
    many = simulate(asked.model_copy(update={"nodes": 64, "cores": 32}), plain()).ways
    assert many.shares.seconds.worst < many.codes.seconds.worst < many.today.seconds.worst
    assert many.shares.traffic < many.codes.traffic < many.today.traffic
    assert many.shares.traffic == pytest.approx(10**4 * 3072 * 63 / 64)


def test_busy_is_work_over_time():
    """A second a sample, 100 samples a day, each encoded about k times: k · 100 seconds of a day."""
    found = simulate(load(samples=10**5, per_day=100, per_task=100, unit=1), plain())
    assert found.ways.today.busy == pytest.approx(found.encodings * 100 / DAY, rel=0.02)
    fast = simulate(load(samples=10**5, per_day=10**5, per_task=100, unit=1), plain())
    assert fast.ways.today.busy > 1  # it does not keep up


def test_gradients_travel_in_a_ring():
    costs = plain()
    found = simulate(load(nodes=64, cores=32), costs)
    model = costs.classifier
    assert found.retraining.steps == costs.passes * 10**6 // costs.batch_size
    assert found.retraining.node_bytes == pytest.approx(
        found.retraining.steps * 2 * 63 / 64 * 4 * model.weights
    )
    assert found.retraining_wide.node_bytes == pytest.approx(found.retraining.node_bytes / 64, rel=1e-3)
    alone = simulate(load(), costs)
    assert alone.retraining == alone.retraining_wide
    assert alone.retraining.node_bytes == 0


def test_the_next_carry():
    found = simulate(load(samples=100_000), plain())
    assert found.next_carry == 131_072  # 128 · 2^10
    assert found.next_carry_days == pytest.approx(31.072)
    assert allocation.layout(found.next_carry, 128)[0].samples == found.next_carry


def test_a_memory_too_small_for_a_level():
    found = growth(load(samples=100), plain())[-1]
    assert found.levels == ()
    assert found.encoded == found.worst.encoded == 0
    assert found.memory_bytes == 100 * 3072


@pytest.mark.parametrize(
    ("samples", "per_day", "per_task"),
    [(10**9, 10**6, 1000), (10**9, 10**6, 1), (2**61, 1, 1), (10**15, 10**9, 12345), (1, 1, 10**12)],
)
def test_any_load_is_answered_at_once(samples, per_day, per_task):
    started = time.process_time()
    growth(load(samples=samples, per_day=per_day, per_task=per_task), plain())
    assert time.process_time() - started < 5  # less than two on a machine that does nothing else


def test_what_cannot_be_asked():
    with pytest.raises(BadSettings, match="no more than the 1,000,000 there are"):
        load(start=10**6)
    for wrong in ({"network": 0}, {"nodes": 0}, {"samples": 0}, {"per_task": 0}, {"unit": 0}):
        with pytest.raises(BadSettings):
            load(**wrong)
    with pytest.raises(ValueError, match="no tasks"):
        carries(5, 5, 1, 1)


def test_what_a_file_holds_is_what_sqlite_allows(tmp_path):
    """The limits that forecasts name are those of this SQLite, or stricter."""
    database = sqlite3.connect(":memory:")
    if sys.version_info >= (3, 11):
        assert database.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) >= MOST_PART
    file = MemoryFile(tmp_path / "m.logcl")
    file.create({})
    (pages,) = sqlite3.connect(file.path).execute("PRAGMA max_page_count").fetchone()
    assert pages >= MOST_PAGES


@given(sample_bytes=st.floats(1, 10**7), level_bytes=st.floats(0, 10**6), unit=st.integers(1, 10**6))
def test_the_largest_memory_of_today_has_no_level_too_large(sample_bytes, level_bytes, unit):
    costs = plain(sample_bytes=sample_bytes, level_bytes=level_bytes)
    today = simulate(load(samples=10**9, per_task=10**9, unit=unit), costs).today

    def largest(samples):
        slots = allocation.layout(samples, unit)
        return slots[0].samples * sample_bytes + level_bytes if slots else 0

    assert largest(today.level_samples) <= MOST_PART * (1 + 1e-9)
    assert largest(today.level_samples + 1) > MOST_PART * (1 - 1e-9)
    assert today.file_samples * sample_bytes <= MOST_PAGES * 1024


def codec(**changes) -> CodecCosts:
    row = costs_of(preset("fast", (3, 32, 32))).codec
    return row.model_copy(update=changes)


def test_seconds_between_and_beyond_what_was_measured():
    row = codec(fits=((1, 2.0), (101, 12.0), (1001, 22.0)))
    assert [row.fit_seconds(m) for m in (1, 51, 101, 551, 1001, 2002)] == [2, 7, 12, 17, 22, 44]


def test_costs_follow_the_values_of_an_image():
    small, large = (costs_of(preset("fast", (3, side, side))) for side in (224, 448))
    assert large.codec.sample_bytes == pytest.approx(4 * small.codec.sample_bytes)
    assert large.codec.fit_seconds(10**4) == pytest.approx(4 * small.codec.fit_seconds(10**4))
    assert large.classifier.pass_seconds == pytest.approx(4 * small.classifier.pass_seconds)
    assert large.codec.level_bytes == small.codec.level_bytes


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (1, 64, 64), (3, 224, 224)])
def test_every_shape_has_costs_of_its_own_codec(shape):
    settings = preset("fast", shape)
    costs = costs_of(settings)
    assert costs.codec.network == settings.generator.network
    assert costs.codec.image_shape == costs.classifier.image_shape == shape
    assert costs.classifier.width == settings.classifier.width
    assert costs.passes == settings.classifier.epochs


def test_the_most_expensive_images_count():
    """Tiles, photographs and enlarged images have one shape; a plan must not count on the cheapest."""
    rows = [row for row in measured().codecs if row.image_shape == (3, 224, 224)]
    assert len(rows) == 3
    assert costs_of(preset("fast", (3, 224, 224))).codec.sample_bytes == max(row.sample_bytes for row in rows)


def test_costs_that_were_not_measured_are_refused():
    with pytest.raises(BadSettings, match="codes = index"):
        costs_of(preset("paper-cpu", (1, 28, 28)))
    binary = override(preset("fast", (1, 28, 28)), {"generator.codes": "binary"})
    with pytest.raises(BadSettings, match="codes = binary"):
        costs_of(binary)


def test_the_costs_are_real_ones():
    """Not those of `--quick`, and in the order that compression has."""
    found = measured()
    assert "--quick" not in found.machine.command
    for row in found.codecs:
        seconds = [value for _, value in row.fits]
        assert seconds == sorted(seconds)
        assert row.decode_seconds < row.fit_seconds(row.fits[-1][0]) / row.fits[-1][0]
        assert row.sample_bytes < math.prod(row.image_shape) / 4
        assert row.ram_bytes > math.prod(row.image_shape)


@pytest.fixture(scope="module")
def made():
    """The script that writes the tables of docs/scale.md."""
    spec = importlib.util.spec_from_file_location("scale_page", ROOT / "tools" / "scale_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_says_what_the_simulator_and_the_costs_say(made):
    """`python bench/scale.py --write` changes nothing, but for a figure that was changed by hand."""
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert "| samples | 1,000,000,000, 3x224x224;" in page
    changed = page.replace("| samples | 1,000,000,000, 3x224x224;", "| samples | 2,000,000,000, 3x224x224;")
    assert made.page(changed, measured()) == page


def test_a_page_without_a_place_for_a_table_is_refused(made, monkeypatch):
    monkeypatch.setattr(made, "_sections", lambda found: {"memory": "| a |\n"})
    assert made.page("<!-- scale:memory -->\nold\n<!-- /scale:memory -->", measured()).count("| a |") == 1
    with pytest.raises(SystemExit, match="no place for memory"):
        made.page("<!-- scale:memory -->", measured())
