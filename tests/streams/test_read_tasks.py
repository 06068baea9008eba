"""Tasks of a source as they are, for a memory; and unlabelled images."""

from __future__ import annotations

import numpy as np
import pytest

from logcl.core.errors import DataError
from logcl.streams import open_stream, read_images, read_tasks


def test_task_folders_are_tasks_of_one_shape(tmp_path, make_images):
    make_images(tmp_path / "task10" / "dog", 1, "RGB", (50, 40))
    make_images(tmp_path / "task2" / "cat", 3, "L", (8, 6))
    first, second = read_tasks(tmp_path)
    assert (first.source, first.y.tolist()) == (str(tmp_path / "task2"), ["cat"] * 3)
    assert (second.source, second.y.tolist()) == (str(tmp_path / "task10"), ["dog"])
    assert first.x.shape[1:] == second.x.shape[1:] == (3, 8, 8), "all folders decide"
    (only,) = read_tasks(tmp_path, (3, 4, 4), first=2)
    assert only.x.shape == (1, 3, 4, 4)
    assert list(read_tasks(tmp_path, first=3)) == []


def test_nothing_is_held_out_and_nothing_is_cached(tmp_path, make_images, own_cache):
    for part in ("train", "test"):
        make_images(tmp_path / "photos" / part / "cat", 5)
    np.savez(tmp_path / "data.npz", x=np.zeros((5, 4, 4), np.uint8), y=np.arange(5))
    (task,) = read_tasks(tmp_path / "photos")
    assert len(task) == 5
    (task,) = read_tasks(tmp_path / "data.npz")
    assert task.y.tolist() == [0, 1, 2, 3, 4], "integers stay integers"
    assert list(read_tasks(tmp_path / "data.npz", first=2)) == []
    assert list(own_cache.iterdir()) == []


def test_a_named_data_set_has_its_tasks_and_class_names():
    tasks = list(read_tasks("digits", first=4))
    stream = open_stream("digits")
    assert [task.source for task in tasks] == ["digits, task 4 of 5", "digits, task 5 of 5"]
    for task, same in zip(tasks, list(stream)[3:], strict=True):
        assert np.array_equal(task.x, same.x)
        assert task.y.tolist() == [stream.classes[label] for label in same.y]


def test_sources_that_do_not_exist():
    with pytest.raises(DataError, match="minst is not a file, a folder or a named data set"):
        next(read_tasks("minst"))


def test_unlabelled_images(tmp_path, make_images):
    make_images(tmp_path / "a" / "deep", 2, "RGB", (9, 9))
    np.savez(tmp_path / "b.npz", x=np.zeros((3, 4, 4), np.uint8))
    files = [tmp_path / "b.npz", tmp_path / "a", tmp_path / "a" / "deep" / "0.png"]
    names, images = zip(*read_images(files, (1, 4, 4)), strict=True)
    deep = [str(tmp_path / "a" / "deep" / f"{k}.png") for k in (0, 1)]
    assert list(names) == [[f"{files[0]}[{k}]" for k in range(3)], [deep[0]], [deep[1]], [deep[0]]]
    assert [x.shape for x in images] == [(3, 1, 4, 4), (1, 1, 4, 4), (1, 1, 4, 4), (1, 1, 4, 4)]
