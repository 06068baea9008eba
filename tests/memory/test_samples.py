"""Samples keep their histories through cutting, joining and encoding."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logcl.core.images import rows_at_once, squared_errors
from logcl.memory.samples import (
    Run,
    Samples,
    added_errors,
    by_generation,
    concatenate,
    encoded,
    generations,
    raw,
    selected,
)

histories = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.floats(0, 1), max_size=3).map(tuple)), min_size=1, max_size=8
)


def make(runs: list[tuple[int, tuple[float, ...]]]) -> Samples:
    count = sum(size for size, _ in runs)
    x = np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1)
    return Samples(
        x, np.arange(count), np.arange(count) + 11, tuple(Run(size, errors) for size, errors in runs)
    )


def spread(samples: Samples) -> list[tuple[float, ...]]:
    """The history of each sample on its own."""
    return [run.errors for run in samples.runs for _ in range(run.count)]


@given(histories, st.data())
def test_a_part_has_the_history_of_its_samples(runs, data):
    whole = make(runs)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    part = whole.between(11 + start, 10 + stop)
    assert part.y.tolist() == list(range(start, stop))
    assert (part.indices - 11).tolist() == part.y.tolist()
    assert spread(part) == spread(whole)[start:stop]
    rejoined = concatenate([whole.between(0, 10 + start), part, whole.between(11 + stop, 2**40)])
    assert np.array_equal(rejoined.indices, whole.indices)
    assert np.array_equal(rejoined.x, whole.x)
    assert spread(rejoined) == spread(whole)


@given(histories, st.data())
def test_encoding_adds_one_error_to_every_sample(runs, data):
    whole = make(runs)
    errors = np.array(data.draw(st.lists(st.floats(0, 1), min_size=len(whole), max_size=len(whole))))
    after = encoded(whole.runs, errors)
    assert sum(run.count for run in after) == len(whole)
    before = [len(history) for history in spread(whole)]
    assert [len(h) for h in spread(Samples(whole.x, whole.y, whole.indices, after))] == [
        length + 1 for length in before
    ]
    # Neighbours are joined, and the error added is preserved in the mean.
    assert all(a.generation != b.generation for a, b in pairwise(after))
    assert [run.generation for run in after] == [len(run.errors) - 1 for run in after]
    assert np.isclose(sum(run.count * run.errors[-1] for run in after), errors.sum())


@given(histories, st.data())
def test_selected_samples_keep_their_histories(runs, data):
    whole = make(runs)
    rows = sorted(data.draw(st.sets(st.integers(0, len(whole) - 1))))
    kept = selected(whole.runs, np.array(rows, dtype=int))
    assert [run.errors for run in kept for _ in range(run.count)] == [spread(whole)[row] for row in rows]
    assert all(run.count for run in kept)


def test_there_may_be_gaps_between_indices():
    samples = Samples(
        np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1),
        np.arange(5),
        np.array([2, 3, 7, 8, 20]),
        (Run(2), Run(3, (0.1,))),
    )
    assert samples.between(3, 7).indices.tolist() == [3, 7]
    assert samples.between(3, 7).runs == (Run(1), Run(1, (0.1,)))
    assert len(samples.between(9, 19)) == 0
    assert samples.between(9, 19).runs == ()


def test_coarsening_adds_an_error_but_no_generation():
    runs = (Run(3, (0.1,)), Run(2, (0.2, 0.1)))
    after = encoded(runs, np.full(5, 0.05), coarsened=True)
    assert [(run.count, run.generation) for run in after] == [(3, 0), (2, 1)]
    assert np.allclose(after[0].errors, (0.1, 0.05))
    assert np.allclose(after[1].errors, (0.2, 0.1, 0.05))
    again = encoded(after, np.full(5, 0.01))
    assert [run.generation for run in again] == [1, 2]
    assert generations(again).tolist() == [1, 1, 1, 2, 2]
    # Equally old, but one was coarsened: their histories cannot be averaged.
    mixed = encoded((Run(1, (0.1, 0.2), 0), Run(1, (0.1,), 0)), np.zeros(2))
    assert [run.count for run in mixed] == [1, 1]
    assert [run.count for run in by_generation(mixed)] == [1, 1]


def test_squared_errors_by_hand():
    x = np.random.default_rng(0).integers(0, 256, (2500, 2, 3, 3), dtype=np.uint8)
    z = x[::-1]
    expected = ((x.astype(float) - z) ** 2).mean(axis=(1, 2, 3)) / 255**2
    assert np.allclose(squared_errors(x, z), expected, rtol=1e-5)
    assert squared_errors(x[:0], z[:0]).shape == (0,)


def test_raw_samples_have_no_generation_yet():
    samples = raw(np.zeros((3, 1, 2, 2), np.uint8), np.zeros(3, np.int64))
    assert [run.generation for run in samples.runs] == [-1]
    assert raw(samples.x[:0], samples.y[:0]).runs == ()


@given(st.tuples(st.integers(1, 64), st.integers(1, 4096), st.integers(1, 4096)))
def test_blocks_are_bounded_by_bytes(shape):
    rows = rows_at_once(shape)
    assert 1 <= rows <= 1024
    assert rows == 1 or rows * 4 * np.prod(shape) <= 2**24


def test_small_images_are_taken_a_thousand_at_once():
    assert [rows_at_once(s) for s in ((1, 8, 8), (3, 32, 32), (3, 256, 256))] == [1024, 341, 5]


def test_errors_by_encoding_and_by_age():
    runs = [Run(10, (0.2, 0.1)), Run(30, (0.4,)), Run(5), Run(10, (0.6, 0.3)), Run(20, (0.1,))]
    assert np.allclose(added_errors(runs), [(2 + 12 + 6 + 2) / 70, (1 + 3) / 20])
    assert added_errors([Run(3)]) == added_errors([]) == ()
    aged = by_generation(runs)
    assert [(run.generation, run.count) for run in aged] == [(-1, 5), (0, 50), (1, 20)]
    assert np.allclose(aged[1].errors, [0.28])
    assert np.allclose(aged[2].errors, [0.4, 0.2])


def test_nothing_new_has_no_history():
    assert encoded((), np.empty(0)) == ()
