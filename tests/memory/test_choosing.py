"""The codec of a memory is the best one for the images of its first task."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from logcl import Memory
from logcl.core.errors import BadSettings
from logcl.memory.choosing import choose
from logcl.memory.presets import preset
from logcl.memory.settings import override
from tests.helpers import photographs, smooth

SHAPE = (3, 32, 32)
FIXED = {"classifier.mirror": False}  # not to be chosen


def ones(x) -> np.ndarray:
    """Class numbers of images that are all of one class."""
    return np.ones(len(x), np.int64)


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return photographs(24, 32)


def memory_of(path, x, **changes):
    memory = Memory.open(path, (*x.shape[1:],), settings={"codec.psnr": 26, **changes})
    memory.absorb(x, np.arange(len(x)) % 4)
    return memory


@pytest.fixture(scope="module")
def made(tmp_path_factory, x) -> Memory:
    """A memory that chose its codec. Only read."""
    return memory_of(tmp_path_factory.mktemp("made") / "m.logcl", x)


def test_the_cheapest_codec_that_reaches_the_quality_wins(x):
    settings, choice = choose(override(preset("fast", SHAPE), {"codec.psnr": 28}), x, ones(x))
    best, *others = choice.trials
    assert settings.codec.name == best.codec
    assert settings.codec.psnr == 28
    assert {trial.codec for trial in choice.trials} == {"pyramid", "image_file", "cosine"}
    assert all(abs(trial.psnr - 28) < 0.3 for trial in choice.trials)
    assert all(best.bytes_per_sample <= trial.bytes_per_sample for trial in others)


def test_the_best_codec_of_the_bytes_wins(x):
    settings, choice = choose(override(preset("fast", SHAPE), {"codec.bytes_per_sample": 150}), x, ones(x))
    assert settings.codec.bytes_per_sample == 150
    assert choice.trials[0].psnr == max(trial.psnr for trial in choice.trials)
    assert choice.trials[0].bytes_per_sample == pytest.approx(150, rel=0.15)


def test_images_that_no_file_can_hold_have_another_codec():
    settings, choice = choose(preset("fast", (2, 20, 20)), smooth(8, (2, 20, 20)), np.ones(8, np.int64))
    assert settings.codec.name == "cosine"
    assert len(choice.trials) == 1


def test_a_codec_that_was_given_stays(x):
    given = override(preset("fast", SHAPE), {"codec.name": "cosine", **FIXED})
    assert choose(given, x, ones(x)) == (given, None)


def test_the_choice_is_made_once_and_kept(tmp_path, made):
    memory = Memory.open(shutil.copy(made.path, tmp_path / "m.logcl"))
    chosen, choice = memory.settings, memory.manifest.choice
    assert chosen.codec.name == choice.trials[0].codec
    memory.absorb(smooth(24, SHAPE), np.arange(24) % 4)
    assert (memory.settings, memory.manifest.choice) == (chosen, choice)
    assert memory.verify() == []


def test_while_all_samples_wait_in_the_buffer_nothing_is_chosen(tmp_path, x):
    memory = memory_of(tmp_path / "m.logcl", x[:5], unit=16)
    assert memory.settings.codec.name == "auto"
    assert memory.manifest.choice is None
    memory.absorb(x[5:], np.arange(19) % 4)
    assert memory.settings.codec.name == "pyramid"
    assert memory.verify() == []


def test_the_same_arguments_open_a_memory_again(tmp_path, made):
    shutil.copy(made.path, tmp_path / "m.logcl")
    Memory.open(tmp_path / "m.logcl", SHAPE, settings={"codec.psnr": 26})
    Memory.open(tmp_path / "m.logcl", SHAPE, settings={"codec.name": "auto", "codec.psnr": 26})
    Memory.open(tmp_path / "m.logcl", SHAPE, settings={"codec.name": "pyramid", "codec.psnr": 26})
    for other in ({"codec.psnr": 28}, {"codec.name": "cosine"}, {"codec.bytes_per_sample": 100}):
        with pytest.raises(BadSettings, match="other settings"):
            Memory.open(tmp_path / "m.logcl", SHAPE, settings=other)


def test_the_result_does_not_depend_on_an_interruption(tmp_path, x, made, monkeypatch):
    memory = Memory.open(tmp_path / "b.logcl", SHAPE, settings={"codec.psnr": 26})
    with monkeypatch.context() as patch:
        patch.setattr("logcl.memory.memory.changes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            memory.absorb(x, np.arange(len(x)) % 4)
    assert memory.settings.codec.name == "auto"
    memory.absorb(x, np.arange(len(x)) % 4)
    assert memory.digest == made.digest


def test_inspect_shows_the_choice_and_the_runner_up(made, logcl):
    shown = logcl("inspect", made.path).out
    line = next(line for line in shown.splitlines() if "chosen on the first images" in line)
    assert line.index("pyramid") < line.index("image_file") < line.index("cosine")
    assert line.count("B per sample at") == 3
    data = json.loads(logcl("inspect", made.path, "--json").out)
    assert [trial["codec"] for trial in data["trials"]] == ["pyramid", "image_file", "cosine"]
