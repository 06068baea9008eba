"""One writer per memory; how memories use the lock is tested in tests/memory/file."""

import json
import os

import pytest

from logcl.core import writer_lock as module
from logcl.core.errors import Busy
from logcl.core.writer_lock import writer_lock


@pytest.fixture
def memory(tmp_path):
    return tmp_path / "pets.logcl"


def lock_of(memory):
    return memory.with_name("pets.logcl.lock")


def test_the_lock_file_names_its_holder_and_is_removed(memory):
    with writer_lock(memory):
        assert json.loads(lock_of(memory).read_text())["pid"] == os.getpid()
        with pytest.raises(Busy, match=f"process {os.getpid()} on .*; try again"), writer_lock(memory):
            pytest.fail("two writers")
        assert lock_of(memory).exists()  # the refused writer did not remove it
    assert not lock_of(memory).exists()


def test_an_error_releases_the_lock(memory):
    with pytest.raises(KeyError), writer_lock(memory):
        raise KeyError
    assert not lock_of(memory).exists()
    with writer_lock(memory):
        pass


def test_a_leftover_lock_file_is_taken_over(memory):
    lock_of(memory).write_text("{" * 500)  # longer than what replaces it
    with writer_lock(memory):
        assert json.loads(lock_of(memory).read_text())["pid"] == os.getpid()


def test_a_holder_without_a_name_is_called_another_process(memory):
    with writer_lock(memory):
        lock_of(memory).write_text("")
        with pytest.raises(Busy, match="written by another process"), writer_lock(memory):
            pytest.fail("two writers")


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be removed here")
def test_a_lock_file_removed_between_open_and_lock_is_not_used(memory, monkeypatch):
    """The holder removes the file on release: a lock on a removed file would not keep other writers out."""
    lock, calls = module._lock, []

    def remove_first(handle):
        calls.append(handle)
        if len(calls) == 1:
            lock_of(memory).unlink()
        lock(handle)

    monkeypatch.setattr(module, "_lock", remove_first)
    with writer_lock(memory):
        assert len(calls) == 2
        with pytest.raises(Busy), writer_lock(memory):
            pytest.fail("two writers")
