"""Reports about a task are true: until the commit nothing has changed, and after it nothing fails."""

import sqlite3
import warnings

import numpy as np
import pytest

from logcl import Classifier, Memory
from logcl.core.errors import CannotWrite, NotReported, Poor
from logcl.core.progress import Silent
from logcl.integrations.logs import CSVLog, JSONLinesLog
from logcl.memory.presets import preset
from logcl.memory.settings import override


@pytest.fixture
def memory(tmp_path, quick) -> Memory:
    return Memory.open(tmp_path / "m.logcl", (1, 8, 8), unit=32, settings=quick)


@pytest.fixture
def task(tmp_path, digits):
    path = tmp_path / "task.npz"
    np.savez(path, x=digits[0][:40], y=digits[1][:40])
    return path


def test_a_new_memory_is_not_there_until_its_first_task_is(tmp_path, digits, quick):
    settings = override(preset("fast", (1, 8, 8)), {**quick, "unit": 32})
    memory = Memory.new(tmp_path / "m.logcl", settings, {"mine": "kept"})
    assert (memory.n, memory.notes, memory.settings) == (0, {"mine": "kept"}, settings)
    with pytest.raises(KeyboardInterrupt):
        memory.absorb(digits[0][:40], digits[1][:40], callbacks=[_interrupt])
    assert list(tmp_path.iterdir()) == []
    memory.absorb(digits[0][:40], digits[1][:40])
    assert Memory.open(memory.path).n == 40
    other = Memory.create(tmp_path / "other.logcl", settings, {"mine": "kept"})
    other.absorb(digits[0][:40], digits[1][:40])
    assert other.digest == memory.digest


def _interrupt(moment) -> None:
    raise KeyboardInterrupt


def test_an_observer_that_fails_after_the_commit_is_a_warning(memory, digits):
    seen = []

    def fail(moment) -> None:
        if moment.what == "memory":
            raise OSError(28, "No space left on device")

    with pytest.warns(
        NotReported, match=r"m\.logcl holds this task, but .*No space left.*do not absorb it again"
    ):
        done = memory.absorb(digits[0][:40], digits[1][:40], callbacks=[fail, lambda m: seen.append(m.what)])
    assert done.n == memory.n == 40
    assert "memory" in seen


def test_quality_that_a_codec_does_not_reach_is_said(tmp_path, digits):
    """WebP has half as many pixels of colour as of brightness, whatever is asked for."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 3, 16, 16), np.uint8)
    settings = {"codec.name": "image_file", "codec.psnr": 38, "codec.format": "webp"}
    memory = Memory.open(tmp_path / "m.logcl", (3, 16, 16), unit=32, settings=settings)
    with pytest.warns(
        Poor, match=r"m\.logcl: images are replayed with \d+\.\d dB, although 38 dB were asked"
    ):
        memory.absorb(noise, digits[1][:64])
    assert memory.n == 64
    better = Memory.open(tmp_path / "better.logcl", (1, 8, 8), unit=32, settings={"codec.psnr": 38})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        better.absorb(digits[0][:64], digits[1][:64])


@pytest.mark.parametrize("log", [CSVLog, JSONLinesLog])
def test_a_log_that_cannot_be_written_is_refused_before_the_work(tmp_path, log):
    with pytest.raises(CannotWrite, match=r"log\.x cannot be written"):
        log(tmp_path / "no" / "log.x")


def test_a_log_in_a_missing_folder_leaves_the_memory_alone(memory, task, tmp_path, logcl):
    ran = logcl("absorb", memory.path, task, "--log", tmp_path / "no" / "log.csv")
    assert ran.code == 7
    assert memory.n == 0


class Replaced(Silent):
    """Another memory takes the place of the one that is being trained on."""

    def __init__(self, path, other) -> None:
        self.path, self.other = path, other

    def log(self, moment) -> None:
        if self.other is not None:
            self.other.path.replace(self.path)
        self.other = None


def test_a_classifier_is_not_stored_in_another_memory(memory, digits, tmp_path, quick):
    memory.absorb(digits[0][:40], digits[1][:40])
    other = Memory.open(tmp_path / "other.logcl", (1, 8, 8), unit=32, settings=quick)
    other.absorb(digits[0][40:90], digits[1][40:90])
    digest = other.digest
    refused = r"m\.logcl was replaced by another memory during the training; nothing was written to it"
    with pytest.raises(CannotWrite, match=refused):
        Classifier.train(memory, progress=Replaced(memory.path, other))
    assert memory.digest == digest
    assert memory.file.read_classifier() is None


def test_a_classifier_is_stored_although_a_task_was_added_meanwhile(memory, digits):
    memory.absorb(digits[0][:40], digits[1][:40])
    beside = Memory.open(memory.path)

    class Growing(Silent):
        def log(self, moment) -> None:
            if beside.n == 40:
                beside.absorb(digits[0][40:90], digits[1][40:90])

    trained = Classifier.train(memory, progress=Growing())
    assert memory.n == 90
    assert not trained.is_current(memory)
    assert Classifier.load(memory).about.samples == 40


def test_a_task_is_not_staged_in_another_memory(memory, digits, tmp_path, quick, monkeypatch):
    monkeypatch.setattr("logcl.memory.staging._WORTH_STAGING", 0)
    memory.absorb(digits[0][:40], digits[1][:40])
    other = Memory.open(tmp_path / "other.logcl", (1, 8, 8), unit=32, settings=quick)
    digest = other.digest
    with pytest.raises(CannotWrite, match="changed by another program; nothing was written"):
        memory.absorb(digits[0][40:240], digits[1][40:240], progress=Replaced(memory.path, other))
    assert memory.digest == digest
    assert memory.file.staged() == {}


def test_a_stray_part_does_not_hide_the_size(memory, digits, tmp_path):
    database = sqlite3.connect(memory.path)
    with database:
        database.execute("INSERT INTO parts VALUES (CAST(x'ff80fe' AS TEXT), zeroblob(32), x'00')")
    database.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory.absorb(digits[0][:40], digits[1][:40])
    assert memory.nbytes() > 0
    assert any("is not listed" in problem for problem in memory.verify())
