"""Downloads from a real server on this machine: mirrors, checksums, broken transfers, resuming."""

from __future__ import annotations

import hashlib
import http.server
import threading

import pytest

from logcl.core.errors import CannotWrite, DataError
from logcl.streams.sources import SOURCES, Source, data_folders, download, download_folder

CONTENT = {"a.gz": b"first file" * 1000, "b.gz": b"second file" * 1000}


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT below /good/, and the same in various bad ways below other names."""

    def do_GET(self):
        self.server.asked.append(self.path)
        _, kind, name = self.path.split("/")
        content = CONTENT[name]
        if kind == "missing" or (kind == "half" and name == "b.gz"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if kind == "wrong":
            content = content[:-1] + b"?"
        if kind == "truncated":
            content = content[: len(content) // 2]
        self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def source_of(server):
    def source_of(*kinds):
        base = f"http://127.0.0.1:{server.server_port}"
        sums = {name: hashlib.md5(c, usedforsecurity=False).hexdigest() for name, c in CONTENT.items()}
        return Source("things", sums, tuple(f"{base}/{kind}/" for kind in kinds), (), ())

    return source_of


def held(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_good_server(tmp_path, server, source_of):
    paths = download(source_of("good"), tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["a.gz", "b.gz"]
    assert held(tmp_path / "new" / "folder") == CONTENT


@pytest.mark.parametrize("first", ["wrong", "truncated", "missing"])
def test_the_second_mirror_is_tried(tmp_path, server, source_of, first):
    download(source_of(first, "good"), tmp_path)
    assert held(tmp_path) == CONTENT
    assert server.asked == [f"/{first}/a.gz", "/good/a.gz", f"/{first}/b.gz", "/good/b.gz"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("wrong", "wrong checksum"), ("truncated", "interrupted|connection"), ("missing", "HTTP 404")],
)
def test_no_partial_file_is_left(tmp_path, source_of, kind, reason):
    with pytest.raises(
        DataError, match=rf"a\.gz could not be downloaded \(.*({reason})\); check the network"
    ):
        download(source_of(kind), tmp_path)
    assert held(tmp_path) == {}


def test_no_server_answers(tmp_path, source_of, server):
    source = source_of("good")
    server.server_close()
    with pytest.raises(DataError, match=r"no connection.*set LOGCL_DATA"):
        download(source, tmp_path)


def test_finished_files_are_kept_and_wrong_ones_replaced(tmp_path, server, source_of):
    with pytest.raises(DataError, match=r"b\.gz could not"):
        download(source_of("half"), tmp_path)
    assert held(tmp_path) == {"a.gz": CONTENT["a.gz"]}
    server.asked.clear()
    download(source_of("good"), tmp_path)
    assert server.asked == ["/good/b.gz"]
    (tmp_path / "a.gz").write_bytes(b"rubbish")
    download(source_of("good"), tmp_path)
    assert held(tmp_path) == CONTENT


def test_the_users_mirror_comes_first(tmp_path, server, source_of, monkeypatch):
    monkeypatch.setenv("LOGCL_MIRROR", f"http://127.0.0.1:{server.server_port}/good")
    download(source_of("wrong"), tmp_path)
    assert server.asked == ["/good/a.gz", "/good/b.gz"]


def test_a_folder_that_cannot_be_written(tmp_path, source_of):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CannotWrite, match="cannot be written"):
        download(source_of("good"), tmp_path / "file" / "folder")


def test_downloads_are_found_after_the_users_folders(tmp_path, own_cache, monkeypatch):
    source = SOURCES["mnist"]
    assert data_folders(source, None) == []
    fetched = download_folder(source, None)
    assert fetched == own_cache / "downloads" / "mnist"
    fetched.mkdir(parents=True)
    (tmp_path / "mnist").mkdir()
    monkeypatch.setenv("LOGCL_DATA", str(tmp_path))
    assert data_folders(source, None) == [tmp_path, tmp_path / "mnist", fetched]


def test_official_addresses_are_https_and_sums_are_md5():
    for source in SOURCES.values():
        assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in source.mirrors)
        assert all(len(bytes.fromhex(md5)) == 16 for md5 in source.checksums.values())
