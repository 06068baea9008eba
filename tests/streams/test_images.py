"""Folders of image files: what counts, what is refused, what is skipped."""

from __future__ import annotations

import numpy as np
import pytest

from logcl.core.errors import DataError
from logcl.streams.images import list_images, natural_key, read_folder
from logcl.streams.survey import survey


def test_classes_and_files_are_in_order(tmp_path, make_images):
    make_images(tmp_path / "dog", 12)
    make_images(tmp_path / "cat", 2)
    assert list_images(tmp_path) == [
        *(tmp_path / "cat" / f"{k}.png" for k in range(2)),
        *(tmp_path / "dog" / f"{k}.png" for k in range(12)),
    ]


def test_number_classes_are_sorted_by_value(tmp_path, make_images):
    for name in ("10", "9", "2"):
        make_images(tmp_path / name, 1)
    assert [path.parent.name for path in list_images(tmp_path)] == ["2", "9", "10"]


def test_natural_order():
    assert sorted(["task10", "task2", "a", "task1b3", "10", "9"], key=natural_key) == [
        "9", "10", "a", "task1b3", "task2", "task10",
    ]  # fmt: skip


def test_hidden_and_other_files_are_ignored(tmp_path, make_images):
    make_images(tmp_path / "cat", 1)
    make_images(tmp_path / ".thumbs", 1)
    for name in ("notes.txt", "Thumbs.db", ".DS_Store", "._0.png"):
        (tmp_path / "cat" / name).write_bytes(b"rubbish")
        (tmp_path / name).write_bytes(b"rubbish")
    assert list_images(tmp_path) == [tmp_path / "cat" / "0.png"]


def test_folders_that_are_something_else(tmp_path, make_images):
    with pytest.raises(DataError, match="is not a folder"):
        list_images(tmp_path / "gone")
    with pytest.raises(DataError, match="has no class folders; put images into folders named after"):
        list_images(tmp_path)
    make_images(tmp_path / "a" / "cat", 1)
    with pytest.raises(DataError, match=r"a holds no images.*give .*a itself"):
        list_images(tmp_path)
    (tmp_path / "b" / "dog").mkdir(parents=True)
    with pytest.raises(DataError, match=r"dog holds no images.*put images into it or remove it"):
        list_images(tmp_path / "b")
    make_images(tmp_path / "c", 1)
    with pytest.raises(DataError, match=r"0\.png is not in a class folder"):
        list_images(tmp_path / "c")


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        ([("L", (28, 28))], (1, 28, 28)),
        ([("L", (28, 28)), ("I;16", (28, 28))], (1, 28, 28)),
        ([("L", (28, 28)), ("RGB", (28, 28))], (3, 28, 28)),
        ([("RGB", (64, 48))], (3, 48, 64)),
        ([("RGB", (65, 48))], (3, 32, 32)),
        ([("RGB", (65, 64))], (3, 64, 64)),
        ([("RGB", (400, 300)), ("L", (300, 400)), ("RGB", (40, 30))], (3, 64, 64)),
        ([("RGB", (400, 300)), ("L", (30, 40)), ("RGB", (40, 30))], (3, 30, 30)),
        ([("L", (8, 9)), ("L", (9, 8))], (1, 8, 8)),
        ([("L", (20, 40)), ("L", (30, 19)), ("L", (22, 22))], (1, 20, 20)),
        ([("L", (3, 40)), ("L", (3, 5))], (1, 8, 8)),
    ],
)
def test_the_shape_is_inferred_from_headers(tmp_path, make_images, images, shape):
    paths = [make_images(tmp_path / str(k), 1, mode, size) / "0.png" for k, (mode, size) in enumerate(images)]
    assert survey(paths).image_shape() == shape


def test_read_folder(tmp_path, make_images):
    make_images(tmp_path / "cat", 3, "L")
    make_images(tmp_path / "dog", 2, "RGBA")
    task = read_folder(tmp_path)
    assert task.x.shape == (5, 3, 6, 8)
    assert task.y.tolist() == ["cat"] * 3 + ["dog"] * 2
    assert (task.source, task.skipped) == (str(tmp_path), ())
    assert read_folder(tmp_path, (1, 4, 4)).x.shape == (5, 1, 4, 4)


def test_bad_files_stop_or_are_skipped(tmp_path, make_images):
    make_images(tmp_path / "cat", 3)
    (tmp_path / "cat" / "1.png").write_bytes(b"rubbish")
    whole = (tmp_path / "cat" / "2.png").read_bytes()
    (tmp_path / "cat" / "2.png").write_bytes(whole[:-30])  # its header is good, its pixels are not
    for shape in (None, (3, 6, 8)):
        with pytest.raises(DataError, match=r"1\.png.*--skip-bad"):
            read_folder(tmp_path, shape)
        task = read_folder(tmp_path, shape, skip_bad=True)
        assert (task.x.shape, task.y.tolist()) == ((1, 3, 6, 8), ["cat"])
        assert [path.name for path, _ in task.skipped] == ["1.png", "2.png"]
        assert all(reason and str(tmp_path) not in reason for _, reason in task.skipped)


def test_only_bad_files(tmp_path, make_images):
    make_images(tmp_path / "cat", 1)
    (tmp_path / "cat" / "0.png").write_bytes(b"rubbish")
    for shape in (None, (3, 6, 8)):
        with pytest.raises(DataError, match="none of its images can be read"):
            read_folder(tmp_path, shape, skip_bad=True)


def test_skipping_reads_what_is_left_correctly(tmp_path, make_images):
    make_images(tmp_path / "cat", 3)
    good = read_folder(tmp_path).x
    (tmp_path / "cat" / "0.png").write_bytes(b"rubbish")
    assert np.array_equal(read_folder(tmp_path, skip_bad=True).x, good[1:])
