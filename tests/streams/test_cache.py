"""The cache of decoded arrays: used if complete, rebuilt if not, and always optional."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from logcl.core.errors import DataError
from logcl.core.files import cache_folder
from logcl.streams.cache import Blueprint, cached

MARK = "0" * 16
CODE = """
import numpy as np, sys
from logcl.streams.cache import Blueprint, cached
def fill(parts):
    for row in range(2000):
        parts["train"].x[row] = row % 256
    parts["train"].y[:] = np.arange(2000)
data = cached("both", "0" * 16, lambda: Blueprint(("a",), (1, 28, 28), {"train": 2000}, fill))
assert (data.train.x[:, 0, 0, 0] == np.arange(2000) % 256).all() and data.train.y[-1] == 1999
"""


class CountedProgress:
    """A blueprint that counts how often it is filled in."""

    def __init__(self):
        self.fills = 0

    def __call__(self):
        def fill(parts):
            self.fills += 1
            for part in parts.values():
                part.x[:] = 7
                part.y[:] = np.arange(len(part.y))

        return Blueprint(("a", "b"), (1, 2, 3), {"train": 5, "test": 4}, fill)


@pytest.fixture
def plan():
    return CountedProgress()


def load(plan, **options):
    data = cached("thing", MARK, plan, **options)
    assert data.classes == ("a", "b")
    assert (data.train.x == 7).all()
    assert data.train.x.shape == (5, 1, 2, 3)
    assert data.test.y.tolist() == [0, 1, 2, 3]
    return data


def test_filled_once_and_read_only(plan, own_cache):
    assert cache_folder() == own_cache
    for _ in range(3):
        data = load(plan)
    assert plan.fills == 1
    with pytest.raises(ValueError, match="read-only"):
        data.train.x[0] = 1
    load(plan, rebuild=True)
    assert plan.fills == 2
    assert [p.name for p in (own_cache / "streams").iterdir()] == [f"thing-{MARK}"]


def entry_of(own_cache):
    return own_cache / "streams" / f"thing-{MARK}"


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def grow(path):
    path.write_bytes(path.read_bytes() + b"x")


def swap_shape(path):
    np.save(path, np.zeros((5, 1, 3, 2), np.uint8))


DAMAGE = {
    "truncated array": lambda entry: cut(entry / "train_x.npy"),
    "longer array": lambda entry: grow(entry / "test_y.npy"),
    "other shape": lambda entry: swap_shape(entry / "train_x.npy"),
    "other type": lambda entry: np.save(entry / "test_y.npy", np.zeros(8, np.int32)),
    "array gone": lambda entry: (entry / "test_x.npy").unlink(),
    "array emptied": lambda entry: (entry / "test_x.npy").write_bytes(b""),
    "no header": lambda entry: (entry / "train_y.npy").write_bytes(
        bytes((entry / "train_y.npy").stat().st_size)
    ),
    "meta gone": lambda entry: (entry / "meta.json").unlink(),
    "meta truncated": lambda entry: cut(entry / "meta.json"),
    "meta of something else": lambda entry: (entry / "meta.json").write_text(json.dumps([1])),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_entries_are_rebuilt(plan, own_cache, damage):
    load(plan)
    DAMAGE[damage](entry_of(own_cache))
    load(plan)
    load(plan)
    assert plan.fills == 2
    assert [p.name for p in (own_cache / "streams").iterdir()] == [f"thing-{MARK}"]


def test_a_decoder_that_fails_leaves_nothing(own_cache):
    for error in (DataError("bad"), KeyboardInterrupt()):

        def fill(parts, error=error):
            raise error

        with pytest.raises(type(error)):
            cached("thing", MARK, lambda fill=fill: Blueprint(("a",), (1, 2, 3), {"train": 5}, fill))
        assert list((own_cache / "streams").iterdir()) == []


def test_an_unwritable_cache_is_not_used(plan, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LOGCL_CACHE", str(tmp_path / "file" / "cache"))
    data = load(plan)
    load(plan)
    assert plan.fills == 2
    assert not data.train.x.flags.writeable


def test_a_full_disk_means_no_cache(plan, own_cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    load(plan)
    assert list((own_cache / "streams").iterdir()) == []


def test_an_entry_that_cannot_be_renamed_means_no_cache(plan, own_cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    load(plan)
    assert list((own_cache / "streams").iterdir()) == []


def test_abandoned_builds_are_swept(plan, own_cache):
    old, new = own_cache / "streams" / ".building-old", own_cache / "streams" / ".building-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    load(plan)
    assert not old.exists()
    assert new.exists()


def test_two_processes_at_once(own_cache):
    workers = [subprocess.Popen([sys.executable, "-c", CODE]) for _ in range(3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert [p.name for p in (own_cache / "streams").iterdir()] == [f"both-{MARK}"]


def test_the_entry_of_another_process_is_used(plan, own_cache):
    other = CountedProgress()

    def slow():
        blueprint = plan()

        def fill(parts):
            load(other)  # as another process would in the meantime
            blueprint.fill(parts)

        return Blueprint(blueprint.classes, blueprint.image_shape, blueprint.sizes, fill)

    load(slow)
    load(plan)
    assert (plan.fills, other.fills) == (1, 1)
