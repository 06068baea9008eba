"""Memories of every earlier format must remain readable: the fixtures hold one of each as written."""

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from logcl import Classifier, Memory
from logcl.memory.file.sqlite import FORMAT
from logcl.memory.presets import preset
from logcl.memory.salvage import salvage
from logcl.memory.settings import Settings, override

FIXTURES = Path(__file__).parents[2] / "fixtures"
WRITTEN = sorted(FIXTURES.glob("format-*.logcl"))
"""Written by `tests/fixtures/make.py` with the LogCL of that time; never to be regenerated."""


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
    assert {version(path) for path in WRITTEN} == {2, 3, 4}
    assert FORMAT == 4, "store a memory of the new format here before it is released"


def test_it_opens_and_replays_the_same_samples(written):
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


def test_settings_of_older_formats_are_those_of_today(written):
    """Up to format 3 there was a group `generator`; its settings still apply."""
    path, _ = written
    settings = Memory.open(path).settings
    name = "paper-cpu" if "paper" in path.stem else "fast"
    today, then = make_settings(name), {"fit": "stretch", "classifier": settings.classifier}
    assert settings == today.model_copy(update=then), "images were stretched; the recipe of the time stays"
    assert not settings.classifier.average_mirrored
    assert Memory.open(path, (1, 8, 8), settings={"codec.epochs": 2, "codec.min_steps": 60}).n == 90


def make_settings(preset_name: str) -> Settings:
    quick = {
        "codec.name": "index" if preset_name == "paper-cpu" else "autoencoder",
        "codec.epochs": 2,
        "codec.min_steps": 60,
        "classifier.epochs": 1,
        "classifier.min_steps": 30,
    }
    return override(preset(preset_name, (1, 8, 8)), {**quick, "classifier.width": 4, "unit": 16})


def test_only_parts_that_change_are_rewritten(written, digits):
    """A level of an older format keeps its bytes beside levels of the current one."""
    path, expected = written
    memory = Memory.open(path)
    old = dict(memory.file.header().parts)
    memory.absorb(digits[0][:8], np.array(["null"] * 8), source="more")  # one more unit: another level 0
    new = dict(memory.file.header().parts)
    assert new["level-2"] == old["level-2"]
    assert [entry.source for entry in memory.ledger][-1] == "more"
    fresh = Memory.open(path)
    assert fresh.verify() == []
    x, y = fresh.snapshot().everything()
    with np.load(expected) as then:
        kept = memory.snapshot().levels[0].slot.samples
        assert np.abs(x[:kept].numpy().astype(int) - then["x"][:kept]).max() <= 1
        assert np.array(memory.classes)[y[:kept]].tolist() == then["y"][:kept].tolist()
    memory.absorb(digits[0][:30], np.array(["eins"] * 30))  # and merged with levels of this format
    assert [level.slot.level for level in memory.snapshot().levels] == [3]
    assert memory.verify() == []
    assert memory.n == 90 + 8 + 30
    assert Classifier.train(memory, recipe={"epochs": 1}).predict(digits[0][:3]).shape == (3,)


def test_salvage_reads_it(written, tmp_path):
    path, expected = written
    saved = salvage(path, tmp_path / "saved.logcl")
    assert saved.lost == ()
    x, _ = saved.memory.snapshot().everything()
    with np.load(expected) as then:
        assert np.abs(x.numpy().astype(int) - then["x"]).max() <= 1
    assert version(saved.memory.path) == FORMAT


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
