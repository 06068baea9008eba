"""MNIST's IDX files, small and made here: every form in which they occur, and every kind of damage."""

from __future__ import annotations

import gzip
import hashlib
import struct

import numpy as np
import pytest

from logcl.core.errors import DataError
from logcl.streams import digits, open_stream

SIZES = {"train": 40, "t10k": 20}


def idx(values):
    return struct.pack(f">{1 + values.ndim}I", 2048 + values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def files(monkeypatch, rng):
    """File name → content of a small MNIST; LogCL is told to expect it."""
    contents = {}
    for part, count in SIZES.items():
        images = rng.integers(0, 256, (count, 4, 4), dtype=np.uint8)
        contents[f"{part}-images-idx3-ubyte"] = idx(images)
        contents[f"{part}-labels-idx1-ubyte"] = idx((np.arange(count) % 10).astype(np.uint8))
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setattr(digits, "SHA256", digests)
    return contents


def write(folder, contents, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["", "mnist", "MNIST/raw"])
def test_found_packed_or_not_at_the_top_or_below(tmp_path, files, packed, place):
    write(tmp_path / place, files, packed)
    stream = open_stream("mnist", data_dir=tmp_path)
    assert stream.image_shape == (1, 4, 4)
    assert stream.source_x.tobytes() == files["train-images-idx3-ubyte"][16:]
    assert stream.source_y.tolist() == [k % 10 for k in range(40)]
    assert stream.test_x.tobytes() == files["t10k-images-idx3-ubyte"][16:]
    assert stream.task_classes == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


def test_found_by_environment_and_overruled_by_argument(tmp_path, files, monkeypatch):
    write(tmp_path / "a", files)
    (tmp_path / "b").mkdir()
    monkeypatch.setenv("LOGCL_DATA", str(tmp_path / "a"))
    assert open_stream("mnist").samples == 40
    with pytest.raises(DataError, match="mnist is missing or incomplete"):
        open_stream("mnist", data_dir=tmp_path / "b")
    with pytest.raises(DataError, match="does not exist; create it"):
        open_stream("mnist", data_dir=tmp_path / "c")


def test_missing_says_what_to_do(tmp_path, files, monkeypatch):
    write(tmp_path, dict(list(files.items())[:3]))
    monkeypatch.setenv("LOGCL_DATA", str(tmp_path))
    with pytest.raises(DataError, match="`logcl data get mnist`, or set LOGCL_DATA") as caught:
        open_stream("mnist")
    assert str(tmp_path) in str(caught.value)


def damaged(content, how):
    if how == "magic":
        return b"\0\0\7\7" + content[4:]
    if how == "counts":
        return content[:7] + bytes([content[7] + 1]) + content[8:]
    if how == "short":
        return content[:-1]
    if how == "header cut":
        return content[:6]
    if how == "long":
        return content + b"x"
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
@pytest.mark.parametrize("how", ["magic", "counts", "short", "header cut", "long", "bit"])
@pytest.mark.parametrize("packed", [True, False])
def test_bad_content(tmp_path, files, own_cache, name, how, packed):
    write(tmp_path, {**files, name: damaged(files[name], how)}, packed)
    with pytest.raises(DataError, match=rf"{name}(\.gz)? has the wrong checksum.*logcl data get mnist"):
        open_stream("mnist", data_dir=tmp_path)
    assert not list(own_cache.glob("streams/*"))


def test_a_file_that_expands_to_any_size(tmp_path, files, monkeypatch):
    monkeypatch.setattr(digits, "_LARGEST_FILE", 10**6)
    write(tmp_path, {**files, "t10k-labels-idx1-ubyte": bytes(10**7)})
    with pytest.raises(DataError, match=r"ubyte\.gz.* of more than 1,000,000 bytes.*logcl data get mnist"):
        open_stream("mnist", data_dir=tmp_path)


@pytest.mark.parametrize("how", ["cut", "not gzip", "bit"])
def test_bad_packing(tmp_path, files, how):
    write(tmp_path, files)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    content = path.read_bytes()
    path.write_bytes(
        {"cut": content[:-20], "not gzip": b"x" * 50, "bit": content[:99] + b"\xff\xfe" + content[101:]}[how]
    )
    with pytest.raises(DataError, match=r"ubyte\.gz is damaged.*logcl data get mnist"):
        open_stream("mnist", data_dir=tmp_path)


def test_a_repaired_file_is_read_again(tmp_path, files):
    write(tmp_path, {**files, "t10k-labels-idx1-ubyte": b"rubbish"})
    with pytest.raises(DataError):
        open_stream("mnist", data_dir=tmp_path)
    write(tmp_path, files)
    assert open_stream("mnist", data_dir=tmp_path).samples == 40
