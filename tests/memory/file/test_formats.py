"""Memories of every format there was must open for ever: each is kept here as it was written."""

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from logcl import Classifier, Memory
from logcl.memory.file.sqlite import FORMAT

FIXTURES = Path(__file__).parents[2] / "fixtures"
WRITTEN = sorted(FIXTURES.glob("format-*.logcl"))
"""Made by `tests/fixtures/make.py` with the LogCL of that time; never to be made again."""


@pytest.fixture(params=WRITTEN, ids=lambda path: path.stem)
def written(request, tmp_path) -> tuple[Path, Path]:
    """A copy to work on, and what it replayed when it was written."""
    return Path(shutil.copy(request.param, tmp_path)), request.param.with_suffix(".npz")


def version(path: Path) -> int:
    database = sqlite3.connect(path)
    try:
        return int(database.execute("PRAGMA user_version").fetchone()[0])
    finally:
        database.close()


def test_there_is_one_of_every_format():
    assert {version(path) for path in WRITTEN} == {2, 3}
    assert FORMAT == 3, "keep a memory of the new format here before it is released"


def test_it_opens_and_replays_what_it_did(written):
    path, expected = written
    before = path.read_bytes()
    memory = Memory.open(path)
    assert memory.verify() == []
    x, y = memory.snapshot().everything()
    with np.load(expected) as then:
        # Another machine may round a pixel the other way.
        assert np.abs(x.numpy().astype(int) - then["x"]).max() <= 1
        assert np.array(memory.classes)[y].tolist() == then["y"].tolist()
        assert Classifier.load(memory).predict(then["x"]).shape == then["y"].shape
    assert path.read_bytes() == before  # reading upgrades nothing


def test_the_next_task_upgrades_it(written, digits):
    path, expected = written
    memory = Memory.open(path)
    n = memory.n
    kept = memory.plan(40).keep
    memory.absorb(digits[0][:40], np.array(["null"] * 40))
    assert version(path) == FORMAT
    assert memory.n == n + 40
    assert memory.verify() == []
    with np.load(expected) as then:
        x, _ = memory.snapshot().fetch(np.arange(1, 1 + sum(slot.samples for slot in kept)))
        assert np.abs(x.numpy().astype(int) - then["x"][: len(x)]).max(initial=0) <= 1
