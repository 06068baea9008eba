"""Opening streams by name."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from logcl.core.errors import BadSettings, DataError
from logcl.streams import CATALOG, open_stream


def test_digits():
    stream = open_stream("digits")
    assert stream.image_shape == (1, 8, 8)
    assert stream.classes == tuple("0123456789")
    assert len(stream) == 5
    assert stream.task_classes == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert np.bincount(stream.test_y).tolist() == [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]
    assert stream.samples + len(stream.test_y) == 1797
    raw = load_digits()
    assert np.array_equal(stream.source_x[:, 0], np.rint(raw.images * 255 / 16))
    assert (stream.source_x.min(), stream.source_x.max()) == (0, 255)
    assert np.array_equal(stream.source_y, raw.target)
    known = "b41ca9fd335466eee997366c2e6f6bbe0a1b4582afe091fc4eba35f4a254182f"
    assert hashlib.sha256(np.ascontiguousarray(stream.source_x)).hexdigest() == known


def test_tasks_hold_what_they_say():
    stream = open_stream("digits", seed=4)
    for task, rows, classes in zip(stream, stream.members, stream.task_classes, strict=True):
        assert np.array_equal(task.x, stream.source_x[rows])
        assert set(task.y) == set(classes)
        assert len(task) == len(rows)
        assert not np.array_equal(rows, np.sort(rows)), "shuffled"
    assert sum(len(task) for task in stream) == stream.samples


def test_the_seed_decides_split_and_order():
    a, b, c, none = (open_stream("digits", seed=s) for s in (0, 0, 1, None))
    assert np.array_equal(a.test_x, b.test_x)
    assert all(np.array_equal(m, n) for m, n in zip(a.members, b.members, strict=True))
    assert not np.array_equal(a.test_x, c.test_x)
    assert np.array_equal(a.test_x, none.test_x)


@pytest.mark.parametrize("tasks", [1, 3, 10, 37, 1438])
def test_any_number_of_tasks(tasks):
    stream = open_stream("digits", tasks=tasks)
    assert len(stream) == tasks
    assert sorted(np.concatenate(stream.members)) == sorted(np.concatenate(open_stream("digits").members))


@pytest.mark.parametrize("tasks", [0, 1439])
def test_impossible_numbers_of_tasks(tasks):
    with pytest.raises(BadSettings, match="choose 1 to 1438"):
        open_stream("digits", tasks=tasks)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(DataError, match="minst is not a file, a folder or a named data set") as caught:
        open_stream("minst")
    assert all(name in str(caught.value) for name in CATALOG)


@pytest.mark.parametrize("name", ["mnist", "omniglot", "cifar100"])
def test_absent_data_sets_say_what_to_do_and_fetch_nothing(name, own_cache):
    with pytest.raises(DataError, match=f"`logcl data get {name}`, or set LOGCL_DATA") as caught:
        open_stream(name)
    assert str(caught.value).count(". ") == 0, "one sentence"
    assert not (own_cache / "downloads").exists()


def test_other_shapes_and_seeds_are_refused():
    assert open_stream("digits", image_shape=(1, 8, 8)).image_shape == (1, 8, 8)
    with pytest.raises(BadSettings, match="only image files are resized"):
        open_stream("digits", image_shape=(1, 28, 28))
    with pytest.raises(BadSettings, match="seed"):
        open_stream("digits", seed=-1)


def test_importing_streams_is_quick():
    slow = "{'torch', 'pooch', 'requests', 'sklearn'}"
    code = f"import sys, logcl.streams; print(sorted({slow} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
