"""Rules R1 to R3, the lemma and the cost of a plan, over long random sequences of tasks."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl.allocation import Slot, layout, max_generation, plan

units = st.integers(1, 50)
# Long runs of small tasks with occasional large ones: carries ripple through many bits.
task_sizes = st.lists(st.one_of(st.just(1), st.integers(1, 9), st.integers(1, 5000)), max_size=120)


def test_the_papers_example():
    assert layout(10) == (Slot(3, 1, 8), Slot(1, 9, 10))
    change = plan(10, 13)
    assert change.keep == (Slot(3, 1, 8),)
    assert change.retire == (Slot(1, 9, 10),)
    assert change.train == (Slot(2, 9, 12), Slot(0, 13, 13))
    assert list(change.buffer) == []


def test_a_unit_leaves_the_rest_in_the_buffer():
    change = plan(0, 2650, unit=1000)
    assert change.train == (Slot(1, 1, 2000),)
    assert change.buffer == range(2001, 2651)


@given(n=st.integers(0, 10**12), unit=units)
def test_layout_is_the_binary_number(n, unit):
    slots = layout(n, unit)
    held = [slot.start for slot in slots] + [n - n % unit + 1]
    assert held[0] == 1  # R1: from the first sample ...
    for slot, following in zip(slots, held[1:], strict=True):
        assert slot.stop + 1 == following  # ... to the last full unit, without gap or overlap
        assert slot.samples == unit * 2**slot.level  # R2
    levels = [slot.level for slot in slots]
    assert levels == sorted(set(levels), reverse=True)  # R3: i -> k does not increase
    assert sum(2**level for level in levels) == n // unit
    assert len(slots) <= max((n // unit).bit_length(), 0)  # floor(log2(n / L)) + 1 models


@given(sizes=task_sizes, unit=units)
def test_plans_chain_and_retrain_exactly_the_changed_bits(sizes, unit):
    n = 0
    for size in sizes:
        before, after = layout(n, unit), layout(n + size, unit)
        change = plan(n, n + size, unit)
        assert change.keep + change.retire == before
        assert change.keep + change.train == after
        assert change.buffer == range((n + size) // unit * unit + 1, n + size + 1)
        assert len(change.buffer) < unit
        flipped = (n // unit) ^ ((n + size) // unit)
        if flipped:
            highest = flipped.bit_length() - 1
            assert change.train[0].level == highest
            assert all(slot.level > highest for slot in change.keep)
            assert all(slot.level < highest for slot in change.retire)
        else:
            assert not change.train
            assert not change.retire
        n += size


@given(sizes=task_sizes, unit=units)
def test_the_lemma(sizes, unit):
    """Follow every held sample: its level only rises, and it is re-encoded at most floor(log2(n/L)) times."""
    n = 0
    held: dict[Slot, int] = {}  # slot -> most re-encodings of any sample in it
    for size in sizes:
        change = plan(n, n + size, unit)
        n += size
        moved = [held.pop(slot) for slot in change.retire]
        for position, slot in enumerate(change.train):
            # All replayed samples end in the first slot: there are fewer of them than it holds.
            if position == 0 and moved:
                assert change.retire[-1].stop <= slot.stop
                held[slot] = max(moved) + 1
            else:
                held[slot] = 0
        assert set(held) == set(layout(n, unit))
        assert all(generation <= slot.level for slot, generation in held.items())
        assert max(held.values(), default=0) <= max_generation(n, unit)


def test_the_lemmas_bound_is_reached():
    """One sample at a time, the first sample is re-encoded at every power of two."""
    generation = 0
    for n in range(1, 1025):
        change = plan(n - 1, n)
        generation += bool(change.retire) and change.retire[0].start == 1
    assert generation == max_generation(1024) == 10


def test_a_million_one_sample_tasks():
    """A plan costs O(log n): were it O(n), this would take hours and hit the suite's time-out."""
    started = time.perf_counter()
    trained = sum(slot.samples for n in range(1_000_000) for slot in plan(n, n + 1).train)
    # Incrementing a binary counter to 2^20 moves each sample about (log2 n) / 2 times.
    assert trained < 1_000_000 * 20
    print(f"{time.perf_counter() - started:.1f} s for a million plans")


WRONG = [-1, 1.0, 2.5, float("nan"), True, "3", None, np.float64(3), np.int64(-1), -(10**30), [1]]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_invalid_counts_are_refused_in_a_sentence(wrong):
    for call in (
        lambda: plan(wrong, 3),
        lambda: plan(0, wrong),
        lambda: plan(0, 3, wrong),
        lambda: layout(wrong),
        lambda: layout(3, wrong),
        lambda: max_generation(wrong),
        lambda: max_generation(3, wrong),
    ):
        with pytest.raises(ValueError, match=r"; give an integer of at least [01]$"):
            call()


def test_impossible_plans_are_refused():
    with pytest.raises(ValueError, match="only ever added"):
        plan(3, 2)
    with pytest.raises(ValueError, match="the unit is 0; give an integer of at least 1"):
        plan(0, 1, 0)


def test_integers_of_any_type_and_size():
    small = plan(np.uint8(200), np.int64(300), np.int32(3))
    assert small == plan(200, 300, 3)
    assert all(type(number) is int for slot in small.train for number in slot)
    assert layout(2**5000, 2**4999) == (Slot(1, 1, 2**5000),)
