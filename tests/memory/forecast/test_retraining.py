"""Tasks are counted exactly as `allocation.plan` would plan them one by one."""

import operator
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl import allocation
from logcl.memory.forecast.forecast import Retraining, count_retraining


def units_fitted(found: Retraining) -> int:
    return sum(map(operator.mul, found.fitted.tolist(), found.tasks.tolist()))


@given(
    start=st.one_of(st.just(0), st.integers(0, 10**6)),
    arrived=st.integers(1, 3000),
    size=st.integers(1, 400),
    unit=st.integers(1, 200),
)
def test_same_groups_as_allocation_plan(start, arrived, size, unit):
    found = count_retraining(start, start + arrived, size, unit)
    planned, most, worst = Counter(), -1, None
    for before, after in pairwise([*range(start, start + arrived, size), start + arrived]):
        change = allocation.plan(before, after, unit)
        fitted = sum(1 << slot.level for slot in change.train)
        planned[fitted, sum(1 << slot.level for slot in change.retire)] += 1
        if fitted > most:
            most, worst = fitted, (before, after)
    counted = Counter()
    for fitted, replayed, tasks in zip(found.fitted, found.replayed, found.tasks, strict=True):
        counted[int(fitted), int(replayed)] += int(tasks)
    assert counted == planned
    assert found.worst == worst
    assert found.task_size == size


@given(power=st.integers(0, 50), unit=st.integers(1, 1000))
def test_any_number_of_one_sample_tasks(power, unit):
    """2^p units need (p + 2) / 2 encodings per sample: one, and one more for every other merge."""
    found = count_retraining(0, unit << power, 1, unit)
    assert units_fitted(found) * 2 == (power + 2) << power
    assert found.worst == ((unit << power) - 1, unit << power)
    assert int(found.tasks.sum()) == unit << power


@given(
    start=st.integers(0, 10**6),
    tasks=st.integers(60, 4000),
    unit=st.integers(1, 50),
    ratio=st.floats(1.02, 60),
)
def test_approximate_count_is_within_one_encoding_per_sample(start, tasks, unit, ratio):
    size = max(int(unit * ratio), unit + 1)
    exact = count_retraining(start, start + size * tasks, size, unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("logcl.memory.forecast.forecast.MAX_ENUMERATED", 50)
        rough = count_retraining(start, start + size * tasks, size, unit)
    assert size / 2 < rough.task_size <= size
    assert abs(units_fitted(rough) - units_fitted(exact)) * unit < size * tasks
