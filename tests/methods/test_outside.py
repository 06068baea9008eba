"""Methods from outside the package: one file given by its path, or an entry point of an installed package."""

import json
from functools import cache
from pathlib import Path

import pytest

from logcl import methods

RIVAL = '''
"""The nearest class mean of the pixels."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from logcl.core.settings import Frozen
from logcl.methods import Method


class Options(Frozen):
    """Hyperparameters of the nearest mean."""

    power: float = Field(1.0, gt=0)
    """Exponent of the pixels."""


class NearestMean(Method):
    """Keeps the sum of the images of each class."""

    name = "nearest-mean"
    summary = "the class with the nearest mean image"
    Options = Options
    options: Options

    def __init__(self, problem, options=None):
        super().__init__(problem, options)
        self.sums = torch.zeros(len(problem.classes), math.prod(problem.settings.image_shape))
        self.counts = torch.zeros(len(problem.classes))

    def learn(self, task):
        if Path("interrupt").exists() and self.counts.count_nonzero() > 2:
            raise KeyboardInterrupt
        with Path("learned").open("a") as log:
            log.write(f"{len(task)}\\n")
        labels = torch.from_numpy(np.array(task.y))
        self.sums.index_add_(0, labels, self._pixels(task.x))
        self.counts += labels.bincount(minlength=len(self.counts))

    def predict(self, x):
        means = self.sums / self.counts.clamp(min=1)[:, None]
        distances = torch.cdist(self._pixels(x), means)
        return distances.masked_fill(self.counts == 0, torch.inf).argmin(dim=1).numpy()

    def state(self):
        return {"sums": self.sums, "counts": self.counts}

    def restore(self, state):
        self.sums, self.counts = state["sums"].clone(), state["counts"].clone()

    def _pixels(self, x):
        return (torch.from_numpy(np.array(x)).flatten(1) / 255) ** self.options.power
'''


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """A folder and a registry for each test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(methods, "_methods", cache(methods._methods.__wrapped__))


@pytest.fixture
def rival(tmp_path) -> Path:
    path = tmp_path / "elsewhere" / "my_rival.py"
    path.parent.mkdir()
    path.write_text(RIVAL)
    return path


def test_a_file_is_run_interrupted_and_resumed(logcl, rival):
    command = [
        "run", "digits", "--tasks", 3, "--method", f"finetune,{rival}", "--json",
        "--set", "nearest-mean.power=0.5", "--set", "classifier.epochs=1", "--set", "classifier.min_steps=0",
    ]  # fmt: skip
    ran = logcl(*command, "--out", "whole")
    assert ran.code == 0, ran.err
    finetune, whole = json.loads(ran.out)
    assert whole["method"] == "nearest-mean"
    assert whole["options"] == {"power": 0.5}
    assert whole["memory_bytes"] == 4 * (10 * 64 + 10)
    assert whole["final_accuracy"] > 0.8 > finetune["final_accuracy"]
    assert "nearest-mean" in Path("whole/report.html").read_text()

    Path("interrupt").touch()
    Path("learned").unlink()
    assert logcl(*command, "--out", "broken").code == 130
    Path("interrupt").unlink()
    again = json.loads(logcl(*command, "--out", "broken").out)[1]
    assert again["accuracy_matrix"] == whole["accuracy_matrix"]
    assert len(Path("learned").read_text().splitlines()) == 3  # no task was learned twice


def test_its_options_are_shown_and_checked(logcl, rival):
    shown = json.loads(logcl("methods", "show", rival, "--json").out)
    assert shown["method"] == "nearest-mean"
    assert shown["options"] == [
        {"name": "nearest-mean.power", "value": 1.0, "meaning": "Exponent of the pixels."}
    ]
    ran = logcl("run", "digits", "--method", rival, "--set", "nearest-mean.magic=1")
    assert ran.code == 2
    assert "no option nearest-mean.magic; the options of nearest-mean are: nearest-mean.power" in ran.err


def test_its_own_name_is_known_once_the_file_is_loaded(rival):
    assert methods.keeps("nearest-mean") == "none"
    found = methods.find(str(rival))
    assert (
        methods.find("nearest-mean") is methods.find(str(rival)) is methods.METHODS["nearest-mean"] is found
    )
    assert methods.options_of(str(rival), {"power": "2"}).power == 2


def test_an_installed_package_adds_its_methods(tmp_path, monkeypatch, logcl):
    (tmp_path / "rivals.py").write_text(RIVAL)
    about = tmp_path / "rivals-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rivals\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[logcl.methods]\nmean = rivals:NearestMean\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert list(methods.METHODS)[-1] == "nearest-mean"
    assert "nearest-mean" in logcl("methods", "list").out
    (about / "entry_points.txt").write_text("[logcl.methods]\nmean = rivals:math\n")
    monkeypatch.setattr(methods, "_methods", cache(methods._methods.__wrapped__))
    ran = logcl("methods", "list")
    assert ran.code == 2
    assert "the entry point rivals:math is no method; it must be" in ran.err
    (about / "entry_points.txt").write_text("[logcl.methods]\nmean = rivals:Missing\n")
    monkeypatch.setattr(methods, "_methods", cache(methods._methods.__wrapped__))
    ran = logcl("methods", "list")
    assert ran.code == 2
    assert "the method rivals:Missing cannot be imported" in ran.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: None, "my_rival.py does not exist; check the path"),
        (lambda text: "import math", "my_rival.py defines no method; add a subclass"),
        (lambda text: text.replace('name = "nearest-mean"', ""), "my_rival.py defines no method"),
        (
            lambda text: text + '\nclass Other(NearestMean):\n    name = "other"\n',
            "my_rival.py defines several methods (NearestMean, Other); put each into its own file",
        ),
        (lambda text: text.replace("nearest-mean", "er"), "methods/er.py; rename one of them"),
        (lambda text: text.replace("nearest-mean", "my rival"), "use lower-case letters, digits and hyphens"),
    ],
)
def test_mistakes_are_one_sentence(logcl, rival, change, message):
    text = change(RIVAL)
    rival.unlink() if text is None else rival.write_text(text)
    ran = logcl("run", "digits", "--method", rival, "--out", "r")
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not Path("r").exists()


def test_two_files_cannot_share_a_name(logcl, rival, tmp_path):
    copy = tmp_path / "copy.py"
    copy.write_text(RIVAL)
    ran = logcl("run", "digits", "--method", f"{rival},{copy}")
    assert ran.code == 2
    assert f"copy.py has the same name as the one in {rival}" in ran.err
