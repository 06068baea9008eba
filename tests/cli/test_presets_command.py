"""`logcl presets`, and how `run` and `absorb` choose the paper's column."""

import json

import numpy as np
import pytest

from logcl import Memory
from logcl.core.settings import described
from logcl.memory.presets import PRESETS, preset


def test_list(logcl):
    ran = logcl("presets", "list")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[: len(PRESETS)]] == list(PRESETS)
    assert [row["name"] for row in json.loads(logcl("presets", "list", "--json").out)] == list(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(
    ("options", "shape", "dataset"),
    [
        ([], (1, 28, 28), None),
        (["--dataset", "omniglot"], (1, 28, 28), "omniglot"),
        (["--dataset", "cifar100"], (3, 32, 32), "cifar100"),
        (["--image-shape", "3x48x40"], (3, 48, 40), None),
    ],
)
def test_show_names_every_setting_with_its_value_and_meaning(logcl, name, options, shape, dataset):
    expected = [list(row) for row in described(preset(name, shape, dataset))]
    assert all(meaning for _, _, meaning in expected), "a setting without a docstring"
    ran = logcl("presets", "show", name, *options)
    assert ran.code == 0, ran.err
    for setting, value, meaning in expected:
        if setting not in ("preset", "image_shape"):
            assert any(
                line.split()[:2] == [setting, str(value)] and meaning in line for line in ran.out.splitlines()
            ), setting
    assert "x".join(map(str, shape)) in ran.out
    assert "--set codec.epochs=50" in ran.out
    found = json.loads(logcl("presets", "show", name, *options, "--json").out)["settings"]
    assert [row["name"] for row in found] == [row[0] for row in expected]
    assert {row["name"]: row["value"] for row in found}["image_shape"] == list(shape)


def test_show_with_a_change(logcl):
    ran = logcl("presets", "show", "paper", "--set", "labels.training.epochs=7", "--json")
    values = {row["name"]: row["value"] for row in json.loads(ran.out)["settings"]}
    assert values["labels.training.epochs"] == 7
    assert values["classifier.epochs"] == 15


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["magic"], "no preset 'magic'; choose one of: fast, paper-cpu, paper"),
        (["paper", "--dataset", "photos"], "no data set 'photos'"),
        (["paper", "--image-shape", "3x32x"], "is not a size of images"),
        (["paper", "--set", "codec.epoch=1"], "no setting 'codec.epoch'"),
        (["paper", "--set", "labels.training=1"], "no setting 'labels.training'"),
    ],
)
def test_bad_input(logcl, arguments, sentence):
    ran = logcl("presets", "show", *arguments)
    assert ran.code == 2
    assert sentence in ran.err


class Asked(Exception):
    """Stops a command once it has asked for settings."""


def test_run_and_absorb_pass_the_data_set_on(tmp_path, logcl, monkeypatch):
    def remember(name, shape, dataset=None, *_):
        raise Asked(name, dataset)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("logcl.memory.presets.preset", remember)
    with pytest.raises(Asked, match="'paper', 'digits'"):
        logcl("run", "digits", "--preset", "paper")
    with pytest.raises(Asked, match="'paper', 'cifar100'"):
        logcl("absorb", "m.logcl", "cifar100", "--preset", "paper")
    np.savez("own.npz", x=np.zeros((9, 8, 8), np.uint8), y=np.arange(9) % 3)
    with pytest.raises(Asked, match="'paper', None"):
        logcl("run", "own.npz", "--preset", "paper")


def test_a_memory_of_the_paper_from_the_command_line(tmp_path, logcl, digits):
    x, y = digits
    np.savez(tmp_path / "some.npz", x=x[:20], y=y[:20])
    quick = ["unit=16", "codec.epochs=2", "codec.warm_up_epochs=2", "codec.width=4",
             "labels.training.epochs=1", "labels.width=4"]  # fmt: skip
    changes = [part for change in quick for part in ("--set", change)]
    path = tmp_path / "m.logcl"
    ran = logcl("absorb", path, tmp_path / "some.npz", "--preset", "paper", *changes)
    assert ran.code == 0, ran.err
    assert Memory.open(path).settings.codec.network == "binplay"
    assert logcl("absorb", path, tmp_path / "some.npz", "--again", "--preset", "paper").code == 0
