"""CIFAR-100's files, small and made here: binary and pickled, extracted and archived, good and hostile."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile

import numpy as np
import pytest

from logcl.core.errors import DataError
from logcl.streams import cifar100, open_stream
from logcl.streams.archives import reading

SIZES = {"train": 300, "test": 100}


@pytest.fixture
def arrays(rng):
    """Part → images and labels of a small CIFAR-100."""
    return {
        part: (rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), rng.permutation(n) % 100)
        for part, n in SIZES.items()
    }


@pytest.fixture
def files(arrays, monkeypatch):
    """File name → content, binary and pickled; LogCL is told their checksums."""
    contents = {}
    for part, (x, y) in arrays.items():
        labels = np.stack([y // 5, y], 1).astype(np.uint8)
        contents[f"{part}.bin"] = np.concatenate([labels, x.reshape(len(x), -1)], 1).tobytes()
        content = {
            b"data": x.reshape(len(x), -1),
            b"fine_labels": y.tolist(),
            b"filenames": [b"a.png"] * len(x),
        }
        contents[part] = pickle.dumps(content, protocol=2)
    trust(monkeypatch, contents)
    return contents


def trust(monkeypatch, contents):
    sums = {
        name: hashlib.md5(content, usedforsecurity=False).hexdigest() for name, content in contents.items()
    }
    monkeypatch.setattr(cifar100, "MD5", sums)


def write(folder, files, version, archived):
    top = f"cifar-100-{version}"
    names = ("train.bin", "test.bin") if version == "binary" else ("train", "test")
    if not archived:
        (folder / top).mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / top / name).write_bytes(files[name])
        return
    with tarfile.open(folder / f"{top}.tar.gz", "w:gz", compresslevel=1) as archive:
        for name in names:
            add(archive, f"{top}/{name}", files[name])


def add(archive, name, content, kind=tarfile.REGTYPE, link=""):
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(content), kind, link
    archive.addfile(member, io.BytesIO(content))


def check(stream, arrays):
    assert stream.classes[:2] == ("apple", "aquarium_fish")
    assert np.array_equal(stream.source_x, arrays["train"][0])
    assert np.array_equal(stream.source_y, arrays["train"][1])
    assert np.array_equal(stream.test_x, arrays["test"][0])
    assert np.array_equal(stream.test_y, arrays["test"][1])
    assert len(stream) == 20
    assert all(len(classes) == 5 for classes in stream.task_classes)


@pytest.mark.parametrize("version", ["binary", "python"])
@pytest.mark.parametrize("archived", [True, False])
def test_all_forms(tmp_path, files, arrays, version, archived):
    write(tmp_path, files, version, archived)
    check(open_stream("cifar100", data_dir=tmp_path), arrays)


def test_the_folder_itself_and_a_usual_place(tmp_path, files, arrays):
    write(tmp_path / "cifar100", files, "binary", archived=False)
    check(open_stream("cifar100", data_dir=tmp_path), arrays)
    check(open_stream("cifar100", data_dir=tmp_path / "cifar100" / "cifar-100-binary"), arrays)


@pytest.mark.parametrize("with_meta", [True, False])
def test_the_folder_of_the_python_version_is_recognised_by_its_meta(tmp_path, files, arrays, with_meta):
    write(tmp_path, files, "python", archived=False)
    folder = (tmp_path / "cifar-100-python").rename(tmp_path / "elsewhere")
    if with_meta:
        (folder / "meta").write_bytes(b"")
        check(open_stream("cifar100", data_dir=folder), arrays)
    else:
        with pytest.raises(DataError, match="cifar100 is missing or incomplete"):
            open_stream("cifar100", data_dir=folder)


def test_the_seed_orders_the_classes(tmp_path, files):
    write(tmp_path, files, "binary", archived=False)
    natural, one, two = (open_stream("cifar100", data_dir=tmp_path, seed=s) for s in (None, 1, 2))
    assert natural.task_classes[0] == (0, 1, 2, 3, 4)
    assert len({natural.task_classes, one.task_classes, two.task_classes}) == 3
    assert natural.classes == one.classes, "the numbers of the classes stay"
    assert open_stream("cifar100", data_dir=tmp_path, seed=1).task_classes == one.task_classes


def refused(tmp_path, own_cache, sentence):
    with pytest.raises(DataError, match=sentence) as caught:
        open_stream("cifar100", data_dir=tmp_path)
    assert "logcl data get cifar100" in str(caught.value)
    assert not list(own_cache.glob("streams/*"))


@pytest.mark.parametrize("archived", [True, False])
def test_bad_binary_files(tmp_path, files, own_cache, monkeypatch, archived):
    good = files["train.bin"]
    for bad in (good[:-1], good + b"x", good[:-1] + bytes([good[-1] ^ 1]), b""):
        write(tmp_path, {**files, "train.bin": bad}, "binary", archived)
        refused(tmp_path, own_cache, r"train\.bin.* has the wrong checksum")
    monkeypatch.setattr(cifar100, "_LARGEST_FILE", len(good) - 1)
    write(tmp_path, files, "binary", archived)
    refused(tmp_path, own_cache, r"train\.bin' of more than")


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("../train.bin", tarfile.REGTYPE, ""),
        ("/etc/train.bin", tarfile.REGTYPE, ""),
        ("cifar-100-binary/../../x", tarfile.REGTYPE, ""),
        ("..\\x", tarfile.REGTYPE, ""),
        ("c:/x", tarfile.REGTYPE, ""),
        ("cifar-100-binary/train.bin", tarfile.SYMTYPE, "/etc/passwd"),
        ("cifar-100-binary/train.bin", tarfile.LNKTYPE, "../../x"),
        ("cifar-100-binary/train.bin", tarfile.FIFOTYPE, ""),
    ],
)
def test_tar_tricks(tmp_path, files, own_cache, name, kind, link):
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz") as archive:
        add(archive, name, b"" if kind != tarfile.REGTYPE else b"x", kind, link)
        for file in ("train.bin", "test.bin"):
            add(archive, f"cifar-100-binary/{file}", files[file])
    refused(tmp_path, own_cache, "unsafe name|not a regular file")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cifar-100-binary.tar.gz"]


def test_broken_tars(tmp_path, files, own_cache):
    path = tmp_path / "cifar-100-binary.tar.gz"
    write(tmp_path, files, "binary", archived=True)
    content = path.read_bytes()
    for bad in (b"", b"rubbish", content[: len(content) // 2], content[:5000] + b"\0\1\2" + content[5003:]):
        path.write_bytes(bad)
        refused(tmp_path, own_cache, "binary.tar.gz.*(damaged|does not hold|checksum)")
    with tarfile.open(path, "w:gz") as archive:
        add(archive, "cifar-100-binary/train.bin", files["train.bin"])
    refused(tmp_path, own_cache, "does not hold test;")
    with tarfile.open(path, "w:gz") as archive:
        add(archive, "cifar-100-binary/train.bin", files["train.bin"])
        add(archive, "elsewhere/train.bin", files["test.bin"])
    refused(tmp_path, own_cache, r"\(train\.bin\) has the wrong checksum")


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_runs_nothing(tmp_path, files, own_cache, monkeypatch, protocol):
    mark = tmp_path / "ran"
    bad = pickle.dumps({b"data": Hostile(mark), b"fine_labels": []}, protocol=protocol)
    trust(monkeypatch, {**files, "train": bad})  # even if its checksum were right
    write(tmp_path, {**files, "train": bad}, "python", archived=False)
    refused(tmp_path, own_cache, r"is damaged or truncated \(it needs (posix|nt)\.system")
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"rubbish",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"Pname\n.",
        pickle.dumps([1]),
        pickle.dumps({b"data": 1, b"fine_labels": 2}),
        pickle.dumps({b"data": np.zeros((3, 30), np.uint8), b"fine_labels": [0, 0, 0]}, 2),
        pickle.dumps({b"data": np.zeros((3, 3072), np.uint8), b"fine_labels": ["a", [], None]}, 2),
    ],
)
def test_other_pickles_are_refused(content):
    with pytest.raises(DataError, match="is damaged or truncated"), reading("train"):
        cifar100.from_pickle(content)
