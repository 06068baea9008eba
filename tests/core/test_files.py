"""A file is replaced as a whole or not at all, whichever step fails."""

import errno
import os
from pathlib import Path

import pytest

from logcl.core.errors import CannotWrite
from logcl.core.files import write_atomically


def test_a_file_is_created_and_replaced(tmp_path):
    path = tmp_path / "result.json"
    for content in (b"first", b"", b"x" * 100_000):
        write_atomically(path, content)
        assert path.read_bytes() == content
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("owner", "step"), [(os, "fsync"), (Path, "replace"), (Path, "open")])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, owner, step):
    path = tmp_path / "result.json"
    path.write_bytes(b"old")

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, fail)
        with pytest.raises(CannotWrite, match=r"result\.json cannot be written \(No space left on device\);"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_an_error_with_one_sentence(tmp_path):
    with pytest.raises(CannotWrite, match="No such file or directory"):
        write_atomically(tmp_path / "missing" / "result.json", b"new")
