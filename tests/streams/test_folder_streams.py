"""Folders of images opened as streams."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from logcl.core.errors import BadSettings, DataError, PassedOver
from logcl.streams import CATALOG, images, open_stream, read_images, read_tasks

MODES = {"grey": "L", "colour": "RGB", "alpha": "RGBA", "palette": "P", "sixteen": "I;16"}


@pytest.fixture
def mixed(tmp_path, make_images):
    """Five classes, each of another mode and size, ten images each."""
    for k, (name, mode) in enumerate(MODES.items()):
        make_images(tmp_path / "mixed" / name, 10, mode, (20 + 7 * k, 90 - 11 * k))
    return tmp_path / "mixed"


def test_five_sizes_and_modes(mixed):
    stream = open_stream(mixed)
    assert stream.image_shape == (3, 32, 32)
    assert stream.classes == tuple(sorted(MODES))
    assert len(stream) == 5
    assert stream.task_classes == ((0,), (1,), (2,), (3,), (4,))
    assert [len(task) for task in stream] == [8] * 5
    assert np.bincount(stream.test_y).tolist() == [2] * 5
    for task in stream:
        assert (task.x.dtype, task.y.dtype) == (np.uint8, np.int64)
        assert task.x.shape == (8, 3, 32, 32)
        assert 50 < task.x.mean() < 205, "random pixels, neither clipped nor lost"


def test_the_same_images_from_npz_give_the_same_stream(mixed, tmp_path):
    stream = open_stream(mixed, image_shape=(1, 16, 16), tasks=3, seed=7)
    labels = np.array(stream.classes)[stream.source_y]
    np.savez(tmp_path / "mixed.npz", x=stream.source_x[:, 0], y=labels)
    same = open_stream(tmp_path / "mixed.npz", tasks=3, seed=7)
    assert same.classes == stream.classes
    assert same.name == stream.name == "mixed"
    assert same.task_classes == stream.task_classes == ((0, 1), (2, 3), (4,))
    for a, b in zip(stream, same, strict=True):
        assert np.array_equal(a.x, b.x)
        assert np.array_equal(a.y, b.y)
    assert np.array_equal(stream.test_x, same.test_x)


def test_no_test_sample_is_learned(mixed):
    stream = open_stream(mixed, seed=3)
    learned = {image.tobytes() for task in stream for image in task.x}
    tested = {image.tobytes() for image in stream.test_x}
    assert (len(learned), len(tested), learned & tested) == (40, 10, set())


def test_train_and_test_folders(tmp_path, make_images):
    for part, count in (("train", 6), ("test", 2)):
        for name in ("cat", "dog"):
            make_images(tmp_path / part / name, count)
    stream = open_stream(tmp_path)
    assert stream.samples == 12
    assert stream.test_y.tolist() == [0, 0, 1, 1]
    assert len(stream) == 2
    make_images(tmp_path / "test" / "yak", 1)
    with pytest.raises(DataError, match="yak is a class without training images"):
        open_stream(tmp_path)


def test_train_may_hold_task_folders(tmp_path, make_images):
    make_images(tmp_path / "train" / "1" / "cat", 3)
    make_images(tmp_path / "train" / "2" / "dog", 4)
    make_images(tmp_path / "test" / "cat", 1)
    stream = open_stream(tmp_path)
    assert [len(task) for task in stream] == [3, 4]
    assert len(stream.test_y) == 1


def test_task_folders_come_in_natural_order(tmp_path, make_images):
    make_images(tmp_path / "task10" / "cat", 1)
    make_images(tmp_path / "task1" / "cat", 5)
    make_images(tmp_path / "task2" / "dog", 10)
    stream = open_stream(tmp_path)
    assert stream.classes == ("cat", "dog")
    assert stream.task_classes == ((0,), (1,), (0,))
    assert [len(task) for task in stream] == [4, 8, 1], "split within each task; a single image stays"
    assert len(open_stream(tmp_path, tasks=3)) == 3
    with pytest.raises(BadSettings, match="holds 3 task folders and cannot be split into 2"):
        open_stream(tmp_path, tasks=2)


def test_task_folders_leave_the_test_out(tmp_path, make_images):
    make_images(tmp_path / "test" / "cat", 1)
    make_images(tmp_path / "train" / "cat", 1)
    assert images.task_folders(tmp_path) == [tmp_path / "train"]
    make_images(tmp_path / "train" / "day10" / "cat", 1)
    with pytest.raises(DataError, match="day10 holds no images"):
        open_stream(tmp_path)
    shutil.rmtree(tmp_path / "train" / "cat")
    make_images(tmp_path / "train" / "day9" / "cat", 1)
    assert images.task_folders(tmp_path) == [tmp_path / "train" / "day9", tmp_path / "train" / "day10"]


def test_classes_may_be_named_train_and_test(tmp_path, make_images):
    make_images(tmp_path / "test", 2)
    make_images(tmp_path / "train", 2)
    assert open_stream(tmp_path).classes == ("test", "train")


def test_a_class_of_one_stays_in_training(tmp_path, make_images):
    make_images(tmp_path / "cat", 1)
    make_images(tmp_path / "dog", 5)
    stream = open_stream(tmp_path)
    assert stream.test_y.tolist() == [1]
    assert [len(task) for task in stream] == [1, 4]


@pytest.mark.parametrize("tasks", [1, 2, 7, 16])
def test_any_number_of_tasks(tmp_path, make_images, tasks):
    for name in ("a", "b"):
        make_images(tmp_path / name, 10)
    stream = open_stream(tmp_path, tasks=tasks)
    assert len(stream) == tasks
    assert sum(len(task) for task in stream) == stream.samples == 16
    assert min(len(task) for task in stream) >= 1


def test_too_many_tasks(tmp_path, make_images):
    make_images(tmp_path / "a", 10)
    with pytest.raises(BadSettings, match="8 training samples cannot be split into 9 tasks"):
        open_stream(tmp_path, tasks=9)


def test_the_second_start_decodes_nothing(mixed, monkeypatch):
    first = open_stream(mixed)
    monkeypatch.setattr(images, "fill_images", None)
    monkeypatch.setattr(images, "survey", None)
    again = open_stream(mixed)
    assert np.array_equal(first.source_x, again.source_x)
    assert np.array_equal(first.test_x, again.test_x)


def test_a_changed_image_is_seen_and_the_old_entry_dropped(mixed, own_cache):
    before = open_stream(mixed).source_x.copy()
    path = mixed / "grey" / "3.png"
    status = path.stat()
    Image.new("L", (20, 90), 77).save(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    after = open_stream(mixed).source_x
    changed = np.flatnonzero((before != after).any(axis=(1, 2, 3)))
    assert len(changed) == 1
    assert (after[changed] == 77).all()
    assert len(list((own_cache / "streams").iterdir())) == 1


def test_shapes_are_cached_apart(mixed, own_cache):
    assert open_stream(mixed, image_shape=(1, 8, 8)).image_shape == (1, 8, 8)
    assert open_stream(mixed, image_shape=(3, 8, 8)).image_shape == (3, 8, 8)
    assert len(list((own_cache / "streams").iterdir())) == 2


def test_a_bad_image_is_named_and_leaves_no_cache(mixed, own_cache):
    path = mixed / "grey" / "3.png"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"grey.3\.png"):
        open_stream(mixed)
    assert list((own_cache / "streams").iterdir()) == []


@pytest.mark.parametrize("shape", [(2, 8, 8), (1, 3, 8, 8), (0, 8)])
def test_impossible_shapes(mixed, shape):
    with pytest.raises(BadSettings, match="shape"):
        open_stream(mixed, image_shape=shape)


def test_empty_folder(tmp_path):
    with pytest.raises(DataError, match="has no class folders"):
        open_stream(tmp_path)


def test_a_folder_named_like_a_data_set_is_refused(tmp_path, make_images, monkeypatch):
    make_images(tmp_path / "digits" / "a", 2)
    monkeypatch.chdir(tmp_path)
    for path in ("./digits", Path("digits"), tmp_path / "digits"):
        assert open_stream(path).classes == ("a",)
        assert [task.y.tolist() for task in read_tasks(path)] == [["a", "a"]]
    for name in ("dataset:digits", CATALOG["digits"]):
        assert len(open_stream(name).classes) == 10
        assert next(read_tasks(name)).source == "digits, task 1 of 5"
    for read in (open_stream, lambda source: next(read_tasks(source))):
        with pytest.raises(BadSettings, match=r"write dataset:digits for the data set or \./digits for"):
            read("digits")
    (tmp_path / "mnist").symlink_to("gone")
    with pytest.raises(BadSettings, match="dataset:mnist"):
        open_stream("mnist")
    with pytest.raises(BadSettings, match="there is no data set 'minst'"):
        open_stream("dataset:minst")


@pytest.mark.skipif(sys.platform != "linux", reason="file names must be Unicode here")
def test_class_folders_that_are_not_utf_8_are_refused_and_other_paths_escaped(tmp_path, make_images):
    make_images(tmp_path / "ol\udcff" / "cat", 3)
    stream = open_stream(tmp_path / "ol\udcff")
    assert stream.name == r"ol\udcff"
    (task,) = read_tasks(tmp_path / "ol\udcff")
    assert task.source == rf"{tmp_path}/ol\udcff"
    make_images(tmp_path / "new" / "caf\udce9", 3)
    for read in (open_stream, lambda source: next(read_tasks(source))):
        with pytest.raises(DataError, match=r"new has a class with the name 'caf\\udce9', .*; rename it"):
            read(tmp_path / "new")


def test_pipes_among_images_are_counted_and_not_opened(tmp_path, make_images):
    make_images(tmp_path / "cat", 2)
    os.mkfifo(tmp_path / "cat" / "pipe.png")
    with pytest.warns(PassedOver, match="images ignored: 1 not regular files$"):
        open_stream(tmp_path)


@pytest.mark.parametrize("name", ["pipe", "pipe.npz", "pipe.png"])
def test_what_is_not_a_regular_file_is_refused_without_opening_it(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / f"socket-{name}"))
    readers = (
        open_stream,
        lambda path: next(read_tasks(path)),
        lambda path: list(read_images([path], (1, 8, 8))),
    )
    for path in (tmp_path / name, tmp_path / f"socket-{name}", Path("/dev/null")):
        for read in readers:
            with pytest.raises(DataError, match="is not a regular file; give a file or a folder"):
                read(path)


def test_ignored_images_are_counted(tmp_path, make_images):
    make_images(tmp_path / "cat", 3)
    make_images(tmp_path / "dog", 3)
    make_images(tmp_path / "cat" / "kittens" / "small", 4)
    make_images(tmp_path / "cat" / ".thumbs", 2)
    (tmp_path / "dog" / "9.png").symlink_to(tmp_path / "gone.png")
    (tmp_path / "yak").symlink_to(tmp_path / "gone")
    with pytest.warns(PassedOver) as warned:
        stream = open_stream(tmp_path)
    assert [str(warning.message) for warning in warned] == [
        f"{tmp_path}: images ignored: 4 in sub-folders of class folders, 2 behind broken links"
    ]
    assert stream.classes == ("cat", "dog")
    assert stream.samples + len(stream.test_y) == 6


@pytest.mark.parametrize("where", [".", "../tasks", "./1/.."])
def test_no_warning_if_nothing_is_ignored(tmp_path, make_images, monkeypatch, where, recwarn):
    for task in ("1", "2"):
        make_images(tmp_path / "tasks" / task / "cat", 2)
    (tmp_path / "tasks" / "1" / "cat" / "notes").write_text("no image")
    monkeypatch.chdir(tmp_path / "tasks")
    assert len(open_stream(where)) == 2
    assert not [warning for warning in recwarn if issubclass(warning.category, PassedOver)]


def test_a_class_of_dangling_links_only(tmp_path, make_images):
    make_images(tmp_path / "dog", 3)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "0.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataError, match="cat holds only broken links"):
        open_stream(tmp_path)
