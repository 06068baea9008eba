"""The page about photographs, run on real ones; and what a memory of features is good for."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from logcl import Classifier, Memory
from logcl.streams import read_tasks
from tests.test_code_blocks import commands, run_command, run_python

CLOTHING = Path(os.environ.get("LOGCL_DATA", "nowhere")) / "clothing"
PER_CLASS = 16
DAYS = {"monday": ("hat", "pants"), "tuesday": ("shoes", "hat"), "test": ("hat", "pants", "shoes")}

pytestmark = pytest.mark.skipif(not CLOTHING.exists(), reason="LOGCL_DATA holds no clothing photographs")


@pytest.fixture(scope="module")
def days(tmp_path_factory) -> Path:
    """Folders `monday`, `tuesday` and `test` with real photographs."""
    folder = tmp_path_factory.mktemp("days")
    taken = dict.fromkeys(DAYS["test"], 0)
    for day, classes in DAYS.items():
        for name in classes:
            part = "test" if day == "test" else "train"
            start = 0 if part == "test" else taken[name]
            taken[name] += PER_CLASS
            (folder / day / name).mkdir(parents=True)
            for path in sorted((CLOTHING / part / name).glob("*.jpg"))[start : start + PER_CLASS]:
                shutil.copy(path, folder / day / name)
    shutil.copy(next((folder / "test" / "hat").glob("*.jpg")), folder / "photo.jpg")
    return folder


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_blocks_of_the_page_run(days, tmp_path, monkeypatch, logcl):
    shutil.copytree(days, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for line in commands("docs/photographs.md"):
        if not line.startswith(("pip install", "logcl run")):
            run_command(line, logcl)
    for path in tmp_path.glob("*.logcl"):
        path.unlink()
    assert run_python("docs/photographs.md", {}) == 2
    assert len(list((tmp_path / "thumbnails").rglob("*.png"))) == 4 * PER_CLASS


def test_features_of_photographs_tell_classes_apart_at_a_hundred_bytes(days, tmp_path):
    memory = Memory.open(tmp_path / "clothes.logcl", backbone="efficientnet-lite0")
    for day in ("monday", "tuesday"):
        (task,) = read_tasks(days / day, memory.settings.input_shape, fit=memory.settings.fit)
        memory.absorb(task.x, task.y)
    codes = sum(sum(t.nbytes for t in level.codes.tensors().values()) for level in memory.snapshot().levels)
    held = sum(map(len, memory.snapshot().levels))
    assert held == 64
    assert codes / held < 160  # tables are a part of so few samples
    assert all(run.generation <= 0 for run in memory.snapshot().runs)
    (test,) = read_tasks(days / "test", memory.settings.input_shape, fit=memory.settings.fit)
    classifier = Classifier.train(memory)
    assert (classifier.predict(test.x) == test.y).mean() > 0.8
    again = Classifier.load(Memory.open(memory.path))
    assert np.array_equal(again.predict_proba(test.x[:4]), classifier.predict_proba(test.x[:4]))
