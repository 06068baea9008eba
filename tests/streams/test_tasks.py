"""Cutting into tasks: every sample in exactly one, none empty, whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl.core.errors import BadSettings
from logcl.streams.stream import check_seed, class_order, cut_rows, group_rows, pieces_per_class, split_rows

labels = st.lists(st.integers(0, 7), min_size=1, max_size=60).map(lambda y: np.array(y, np.int64))
seeds = st.none() | st.integers(0, 2**32)


@given(labels, st.data(), seeds)
def test_every_training_sample_arrives_once_and_no_task_is_empty(y, data, seed):
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(y) - 1), min_size=1))))
    tasks = data.draw(st.integers(1, len(rows)))
    order = class_order(8, data.draw(seeds))
    members = cut_rows(y, rows, order, tasks, seed)
    assert len(members) == tasks
    assert all(len(m) for m in members)
    assert sorted(np.concatenate(members)) == list(rows)


@given(labels, st.data(), seeds)
def test_classes_arrive_in_order_and_nearly_equally_many_per_task(y, data, seed):
    present = np.unique(y)
    order = [c for c in class_order(8, data.draw(seeds)) if c in present]
    tasks = data.draw(st.integers(1, len(present)))
    absent = [c for c in range(8) if c not in order]
    members = cut_rows(y, np.arange(len(y)), [*order, *absent], tasks, seed)
    groups = [set(y[m]) for m in members]
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    assert [c for c in order for g in groups if c in g] == order, "no class is in two tasks"
    starts = [min(order.index(c) for c in g) for g in groups]
    assert starts == sorted(starts)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.data())
def test_pieces_are_nearly_equal_but_never_more_than_samples(counts, data):
    tasks = data.draw(st.integers(len(counts), sum(counts)))
    pieces = pieces_per_class(counts, tasks)
    assert sum(pieces) == tasks
    assert all(1 <= p <= n for p, n in zip(pieces, counts, strict=True))
    free = [p for p, n in zip(pieces, counts, strict=True) if p < n]
    assert not free or max(pieces) - min(free) <= 1


def test_more_tasks_than_classes_cut_classes_into_consecutive_tasks():
    y = np.repeat([0, 1], 10)
    members = cut_rows(y, np.arange(20), (1, 0), 5, seed=3)
    assert [set(y[m]) for m in members] == [{1}, {1}, {1}, {0}, {0}]
    assert [len(m) for m in members] == [4, 3, 3, 5, 5]


@given(labels, seeds)
def test_split_is_stratified(y, seed):
    train, test = split_rows(y, seed)
    assert sorted([*train, *test]) == list(range(len(y)))
    for c in np.unique(y):
        n, held = int((y == c).sum()), int((y[test] == c).sum())
        assert held == (0 if n == 1 else max(1, round(0.2 * n)))


def test_the_seed_decides_and_none_is_like_zero():
    y = np.repeat(np.arange(4), 25)
    for draw in (lambda s: split_rows(y, s)[1], lambda s: cut_rows(y, np.arange(100), range(4), 1, s)[0]):
        assert np.array_equal(draw(5), draw(5))
        assert not np.array_equal(draw(5), draw(6))
        assert np.array_equal(draw(None), draw(0))
    assert class_order(10, None) == tuple(range(10)) != class_order(10, 0) != class_order(10, 1)
    assert sorted(class_order(10, 1)) == list(range(10))


def test_group_rows_keeps_groups_together():
    groups = np.array([0, 0, 1, 1, 1, 2])
    members = group_rows(groups, np.array([0, 2, 3, 5]), seed=0)
    assert [sorted(m) for m in members] == [[0], [2, 3], [5]]


@pytest.mark.parametrize("tasks", [0, -1, 21, 2.5, "5", True])
def test_impossible_numbers_of_tasks(tasks):
    with pytest.raises(BadSettings, match="tasks"):
        cut_rows(np.repeat([0, 1], 10), np.arange(20), (0, 1), tasks, seed=0)


@pytest.mark.parametrize("seed", [-1, 0.5, "0", True])
def test_impossible_seeds(seed):
    with pytest.raises(BadSettings, match="seed"):
        check_seed(seed)
