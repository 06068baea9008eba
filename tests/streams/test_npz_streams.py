"""`.npz` files opened as streams, and every way they can be wrong."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from logcl.core.errors import BadInput, BadSettings, DataError
from logcl.streams import open_stream, read_npz


@pytest.fixture
def save(tmp_path):
    def save(compressed=False, **arrays):
        path = tmp_path / "data.npz"
        (np.savez_compressed if compressed else np.savez)(path, **arrays)
        return path

    return save


@pytest.mark.parametrize(
    ("shape", "image_shape"),
    [
        ((20, 5, 6), (1, 5, 6)),
        ((20, 1, 5, 6), (1, 5, 6)),
        ((20, 3, 5, 6), (3, 5, 6)),
        ((20, 4, 5, 6), (4, 5, 6)),
        ((20, 5, 6, 1), (1, 5, 6)),
        ((20, 5, 6, 3), (3, 5, 6)),
        ((20, 3, 5, 3), (3, 5, 3)),  # both could be channels: NCHW wins
    ],
)
def test_layouts(save, rng, shape, image_shape):
    x = rng.integers(0, 256, shape, dtype=np.uint8)
    images, labels = read_npz(save(x=x, y=np.arange(20) % 4))
    assert images.shape == (20, *image_shape)
    nchw = x.transpose(0, 3, 1, 2) if shape[1:] == (*image_shape[1:], image_shape[0]) and shape[1] == 5 else x
    assert np.array_equal(images, nchw.reshape(images.shape))
    assert labels.tolist() == [k % 4 for k in range(20)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressed", [False, True])
def test_floats_are_scaled(save, rng, dtype, order, compressed):
    x = np.array(rng.integers(0, 256, (30, 7, 7)) / 255, dtype, order=order)
    images, _ = read_npz(save(compressed, x=x, y=np.zeros(30, int)))
    assert np.array_equal(images[:, 0], np.rint(x.astype(np.float64) * 255))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("block", [1, 20, 200, 5000, 10**6])
def test_blocks_join(save, rng, monkeypatch, order, block):
    monkeypatch.setattr("logcl.streams.arrays._BLOCK_BYTES", block)
    x = np.array(rng.integers(0, 256, (50, 8, 8, 3)), np.uint8, order=order)
    images, _ = read_npz(save(x=x, y=np.zeros(50, int)))
    assert np.array_equal(images, x.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("kind", ["<U1000000", "|S1000000"])
def test_labels_as_long_as_the_longest(save, kind):
    """A compressed megabyte of labels must not become gigabytes."""
    path = save(compressed=True, x=np.zeros((40, 8, 8), np.uint8), y=np.full(40, "a", kind))
    with pytest.raises(BadInput, match="each label takes the room of the longest"):
        read_npz(path)


def test_own_test_part_is_kept(save, rng):
    x = rng.integers(0, 256, (30, 8, 8), dtype=np.uint8)
    y = np.arange(30) % 10 - 2
    path = save(x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:, None].astype(np.uint8) * 0 + 3)
    stream = open_stream(path)
    assert stream.classes == ("-2", "-1", "0", "1", "2", "3", "4", "5", "6", "7"), "by value, not by letter"
    assert len(stream) == 5
    assert stream.samples == 20
    assert np.array_equal(stream.test_x[:, 0], x[20:])
    assert stream.test_y.tolist() == [5] * 10


@pytest.mark.parametrize("labels", [["b", "a"] * 10, [b"b", b"a"] * 10])
def test_string_labels(save, rng, labels):
    stream = open_stream(save(x=rng.random((20, 4, 4)), y=np.array(labels)))
    assert stream.classes == ("a", "b")
    assert stream.source_y[:2].tolist() == [1, 0]
    assert len(stream) == 2, "five tasks, or as many as classes"


IMAGES = np.zeros((4, 6, 6), np.uint8)
LABELS = np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": IMAGES}, "holds x; save x and y, or"),
        ({"a": IMAGES}, "holds a; save x and y"),
        ({"x": IMAGES, "y": LABELS[:3]}, "4 images for 3 labels"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, "one label per sample"),
        ({"x": IMAGES, "y": np.eye(4)}, "one label per sample"),
        ({"x": IMAGES, "y": LABELS / 2}, "y has type float64; save integers or strings"),
        ({"x": IMAGES.astype(np.int64) + 256, "y": LABELS}, "integer images must lie in 0 to 255"),
        ({"x": IMAGES.reshape(4, 36), "y": LABELS}, r"has shape \(4, 36\)"),
        ({"x": IMAGES.reshape(4, 2, 9, 2), "y": LABELS}, "with 1, 3 or 4 channels"),
        ({"x": IMAGES[:, :0], "y": LABELS}, "has shape"),
        ({"x": IMAGES + np.nan, "y": LABELS}, "NaN or infinite"),
        ({"x": IMAGES + np.inf, "y": LABELS}, "NaN or infinite"),
        ({"x": IMAGES + 1.5, "y": LABELS}, "range from"),
        ({"x": IMAGES - 0.5, "y": LABELS}, "range from"),
        ({"x": np.array([object()] * 4), "y": LABELS}, "x holds Python objects, which are never loaded"),
        ({"x": IMAGES, "y": np.array(["a", 1, "b", 2], object)}, "y holds Python objects"),
        (
            {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS + 1},
            "label 2 of y_test is not in y_train",
        ),
        (
            {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS.astype(str)},
            "make them alike",
        ),
        (
            {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:, :5], "y_test": LABELS},
            "different shapes",
        ),
    ],
)
def test_wrong_content_is_refused_in_one_sentence(save, own_cache, arrays, sentence):
    with pytest.raises(BadInput, match=sentence) as caught:
        open_stream(save(**arrays))
    assert "data.npz" in str(caught.value)
    assert not list(own_cache.glob("streams/*"))


def test_damaged_files(save, tmp_path, rng):
    whole = save(x=rng.random((40, 9, 9)), y=np.arange(40)).read_bytes()
    path = tmp_path / "data.npz"
    for content in (b"", b"rubbish", whole[:-100], whole[: len(whole) // 2], _flip(whole, 3000)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"data\.npz is damaged.*save it again"):
            open_stream(path)


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]


def test_an_array_shorter_than_its_header(tmp_path):
    header = {"descr": "<f4", "fortran_order": False, "shape": (4, 6, 6)}
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        with archive.open("x.npy", "w") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.write(bytes(100))
        with archive.open("y.npy", "w") as file:
            np.lib.format.write_array(file, LABELS)
    with pytest.raises(DataError, match="x is truncated"):
        open_stream(tmp_path / "data.npz")


def test_a_header_that_claims_more_than_any_file_could_hold(tmp_path, monkeypatch):
    header = {"descr": "|u1", "fortran_order": False, "shape": (4, 10**7, 10**7)}
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        with archive.open("x.npy", "w") as file:
            np.lib.format.write_array_header_1_0(file, header)
        with archive.open("y.npy", "w") as file:
            np.lib.format.write_array(file, LABELS)
    whole = zipfile.ZipFile.getinfo

    def lying(self, name):
        member = whole(self, name)
        member.file_size = 10**15
        return member

    monkeypatch.setattr(zipfile.ZipFile, "getinfo", lying)
    with pytest.raises(DataError, match="x is truncated"):
        read_npz(tmp_path / "data.npz")


def test_other_shape_is_refused(save):
    path = save(x=IMAGES, y=LABELS)
    assert open_stream(path, image_shape=(1, 6, 6)).image_shape == (1, 6, 6)
    with pytest.raises(BadSettings, match="only image files are resized"):
        open_stream(path, image_shape=(3, 6, 6))


def test_other_files_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    with pytest.raises(DataError, match=r"is not an \.npz file"):
        open_stream(tmp_path / "x.npy")


def test_zero_tasks(save):
    with pytest.raises(BadSettings, match="0 tasks"):
        open_stream(save(x=IMAGES, y=LABELS), tasks=0)
