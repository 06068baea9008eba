"""`logcl data`: list, get, check."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import json
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from logcl.cli.data import data
from logcl.core.errors import BadSettings, DataError
from logcl.streams import digits, sources


@pytest.fixture
def small_mnist(tmp_path, monkeypatch):
    """A folder with a small MNIST that LogCL accepts as the real one."""
    folder = tmp_path / "official"
    folder.mkdir()
    for name in digits.SHA256:
        dims = (40 if name.startswith("train") else 20, *(4, 4)[: 2 if "images" in name else 0])
        values = (np.arange(np.prod(dims)) % 10).astype(np.uint8)
        content = np.array([2048 + len(dims), *dims], ">u4").tobytes() + values.tobytes()
        packed = gzip.compress(content)
        (folder / f"{name}.gz").write_bytes(packed)
        monkeypatch.setitem(digits.SHA256, name, hashlib.sha256(content).hexdigest())
        md5 = hashlib.md5(packed, usedforsecurity=False).hexdigest()
        monkeypatch.setitem(sources.SOURCES["mnist"].checksums, f"{name}.gz", md5)
    return folder


@pytest.fixture
def mirror(small_mnist, monkeypatch):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(small_mnist))
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *args: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        monkeypatch.setenv("LOGCL_MIRROR", f"http://127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()
        thread.join()


def run(*words, fails=None):
    result = CliRunner().invoke(data, [str(word) for word in words])
    if fails is None:
        assert result.exception is None, result.exception
    else:
        assert isinstance(result.exception, fails), result.exception
    return result


def test_list_without_data():
    text = run("list").stdout
    for name in ("mnist", "omniglot", "omniglot-100", "cifar100"):
        assert f"not found; download it with `logcl data get {name}`" in text
    assert "comes with scikit-learn" in text


def test_list_as_json(small_mnist):
    rows = {row["name"]: row for row in json.loads(run("list", "--json", "--data-dir", small_mnist).stdout)}
    assert list(rows) == ["digits", "mnist", "omniglot", "omniglot-100", "cifar100"]
    assert [rows[name]["present"] for name in rows] == [True, True, False, False, False]
    assert rows["mnist"]["tasks"] == 5
    assert len(rows["mnist"]["files"]) == 4


def test_get_then_check(mirror, own_cache):
    assert f"mnist is in {own_cache / 'downloads' / 'mnist'}" in run("get", "mnist").stdout
    assert "mnist" in run("get", "mnist").stdout, "again: everything is kept"
    assert "mnist         good: 40 + 20 images 1x4x4, 10 classes\n" in run("check", "mnist").stdout


def test_get_as_json(mirror, own_cache, tmp_path):
    got = json.loads(run("get", "mnist", "--json").stdout)
    assert got["name"] == "mnist"
    assert sorted(got["files"]) == sorted(map(str, (own_cache / "downloads" / "mnist").iterdir()))
    assert len(got["files"]) == 4
    assert json.loads(run("get", "mnist", "--json").stdout) == got
    assert json.loads(run("get", "digits", "--json").stdout) == {"name": "digits", "files": []}


def test_get_into_a_folder(mirror, tmp_path):
    run("get", "mnist", "--data-dir", tmp_path / "new")
    assert len(list((tmp_path / "new" / "mnist").iterdir())) == 4
    assert "good" in run("check", "mnist", "--data-dir", tmp_path / "new").stdout


def test_get_keeps_existing_files(small_mnist, monkeypatch):
    monkeypatch.setenv("LOGCL_DATA", str(small_mnist))
    assert f"mnist is already in {small_mnist}" in run("get", "mnist").stdout
    there = json.loads(run("get", "mnist", "--json").stdout)["files"]
    assert sorted(there) == sorted(map(str, small_mnist.iterdir()))
    assert "nothing to download" in run("get", "digits").stdout


def test_unknown_names():
    for command in ("get", "check"):
        error = run(command, "minst", fails=BadSettings).exception
        assert "digits, mnist, omniglot, omniglot-100, cifar100" in str(error)


def test_check_everything_present(small_mnist):
    results = json.loads(run("check", "--json", "--data-dir", small_mnist).stdout)
    states = [(r["name"], r["state"]) for r in results]
    assert states[:2] == [("digits", "good"), ("mnist", "good")]
    assert states[2:] == [(name, "absent") for name in ("omniglot", "omniglot-100", "cifar100")]
    assert [file["published"] for file in results[1]["files"]] == [True] * 4


def test_check_finds_damage(small_mnist):
    path = small_mnist / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-3])
    result = run("check", "--json", "--data-dir", small_mnist, fails=DataError)
    assert "t10k-labels-idx1-ubyte.gz is damaged" in str(result.exception)
    states = {r["name"]: r["state"] for r in json.loads(result.stdout)}
    assert (states["digits"], states["mnist"]) == ("good", "bad")


def test_check_of_something_absent():
    assert "logcl data get cifar100" in str(run("check", "cifar100", fails=DataError).exception)


def test_check_reports_repacked_files(small_mnist):
    path = small_mnist / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1))
    text = run("check", "mnist", "--data-dir", small_mnist).stdout
    assert "correct content, but not the published archives" in text
    assert str(path) in text.replace("\n", "")


def test_check_rebuilds_a_damaged_cache(small_mnist, own_cache):
    run("check", "mnist", "--data-dir", small_mnist)
    (array,) = own_cache.glob("streams/mnist-*/train_x.npy")
    whole = array.read_bytes()
    array.write_bytes(whole[:-1] + b"?")  # the right size: only found by reading everything again
    run("check", "mnist", "--data-dir", small_mnist)
    (array,) = own_cache.glob("streams/mnist-*/train_x.npy")
    assert array.read_bytes() == whole
