"""Whether images may be mirrored is measured on the first task, shown, and used by training."""

from __future__ import annotations

import json

import numpy as np
import pytest

from logcl import Classifier, Memory
from logcl.core.trials import MirrorTrial
from logcl.experiments.run import settled
from logcl.memory.choosing import choose_mirror
from logcl.memory.mirroring import measure
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.nn.classification import averages
from logcl.streams import CATALOG, open_stream
from tests.helpers import photographs, smooth

BRIEF = {"classifier.epochs": 1, "classifier.min_steps": 1, "classifier.width": 4}


def symmetric(count: int, side: int = 12) -> np.ndarray:
    """Textures: mirror images of them are just as likely."""
    return smooth(count, (3, side, side))


def test_writing_is_told_from_its_mirror_image(digits):
    x, y = digits
    trial = measure(x, y)
    assert trial.told > 0.9
    assert not trial.mirror


def test_writing_in_colour_is_not_mirrored_either(digits):
    grounds = symmetric(500, 8).astype(int)
    x = (grounds // 2 + np.repeat(digits[0][:500], 3, axis=1) // 2).astype(np.uint8)
    assert not measure(x, digits[1][:500]).mirror


@pytest.mark.parametrize("count", [16, 100, 600])
def test_what_looks_alike_when_mirrored_is_mirrored(count):
    trial = measure(symmetric(count), np.arange(count) % 3)
    assert trial.told < 0.75
    assert trial.mirror


def test_a_few_photographs_are_mirrored():
    assert measure(photographs(24, 32), np.arange(24) % 4).mirror


def test_images_that_equal_their_mirror_images_are_told_by_chance():
    half = symmetric(64, 12)
    x = np.concatenate([half, half[..., ::-1]], axis=3)
    assert measure(x, np.zeros(64, int)).told == 0.5


def test_classes_that_are_mirror_images_of_each_other_are_not_mirrored(digits):
    """Like b and d: all images together look as if nothing would change."""
    x = digits[0][:400]
    both = np.concatenate([x, x[..., ::-1]])
    classes = np.repeat([0, 1], 400)
    assert measure(both, np.zeros(800, int)).mirror
    assert not measure(both, classes).mirror


@pytest.mark.parametrize(("channels", "expected"), [(1, False), (3, True)])
@pytest.mark.parametrize("count", [1, 15])
def test_too_few_images_decide_by_colour(channels, expected, count):
    trial = measure(smooth(count, (channels, 8, 8)), np.zeros(count, int))
    assert trial == MirrorTrial(images=count, told=None, mirror=expected)


def test_equal_images_are_no_difficulty():
    assert measure(np.full((40, 3, 8, 8), 7, np.uint8), np.zeros(40, int)).told == 0.5


@pytest.mark.parametrize("shape", [(1, 1, 40), (3, 40, 1), (1, 2, 2), (3, 90, 50)])
def test_images_of_every_shape_are_measured(shape):
    trial = measure(smooth(20, shape), np.zeros(20, int))
    assert 0 <= trial.told <= 1


def test_settings_that_were_given_stay(digits):
    for value in (True, False):
        given = override(preset("fast", (1, 8, 8)), {"classifier.mirror": value})
        assert choose_mirror(given, *digits) == (given, None)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Memory:
    """A memory of textures that may be mirrored, with a classifier. Only read."""
    path = tmp_path_factory.mktemp("made") / "m.logcl"
    memory = Memory.open(path, (3, 12, 12), settings={"codec.name": "cosine", **BRIEF})
    memory.absorb(symmetric(200), np.arange(200) % 2)
    Classifier.train(memory)
    return memory


def test_the_choice_is_kept_with_the_memory(made):
    choice = made.manifest.choice
    assert choice.mirror.mirror is made.settings.classifier.mirror is True
    assert choice.asked is None  # the codec was given
    Memory.open(made.path, settings={"classifier.mirror": "auto", "codec.name": "cosine"})
    assert made.verify() == []


def test_the_choice_is_shown(made, logcl):
    assert "images are mirrored in training: " in logcl("inspect", made.path).out
    assert json.loads(logcl("inspect", made.path, "--json").out)["mirror"]["images"] == 200


def test_predictions_are_averages_over_mirror_images(made):
    classifier, x = Classifier.load(made), symmetric(20)
    assert classifier.about.mirrored
    assert np.allclose(classifier.predict_proba(x), classifier.predict_proba(x[..., ::-1]), atol=1e-6)


def test_the_average_is_a_setting(made, tmp_path):
    memory = Memory.open(
        tmp_path / "m.logcl", (3, 12, 12), settings={"classifier.average_mirrored": False, **BRIEF}
    )
    x = symmetric(80)
    memory.absorb(x, np.arange(80) % 2)
    classifier = Classifier.train(memory)
    assert memory.settings.classifier.mirror is True
    assert not np.allclose(classifier.predict_proba(x), classifier.predict_proba(x[..., ::-1]), atol=1e-3)


def test_nothing_is_averaged_where_nothing_is_mirrored():
    for mirror, expected in ((False, False), ("auto", False), (True, True)):
        settings = override(preset("fast", (3, 8, 8)), {"classifier.mirror": mirror}).classifier
        assert averages(settings) is expected


def test_experiments_choose_before_the_methods_start():
    stream = open_stream(CATALOG["digits"], seed=0)
    settings = settled(preset("fast", stream.image_shape), stream)
    assert settings.classifier.mirror is False
    assert settled(settings, stream) == settings
