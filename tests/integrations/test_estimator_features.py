"""LogCLClassifier with a backbone: images of any size, or features, in one memory."""

import pickle

import joblib
import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from logcl import LogCLClassifier, Memory
from logcl.core.errors import BadInput, BadSettings
from logcl.nn import backbones
from tests.helpers import tiny_backbone

BRIEF = {"classifier.min_steps": 120, "classifier.epochs": 4, "codec.step": 2}


@pytest.fixture
def backbone():
    return tiny_backbone()


@pytest.fixture
def pictures(digits):
    """Eighty digits as colour images (n, 3, 24, 20), dark, grey or bright, which are their classes."""
    classes = np.arange(80) % 3
    grey = np.pad(digits[0][:80] * 0.3 * (1 + classes[:, None, None, None]), ((0, 0), (0, 0), (8, 8), (6, 6)))
    return np.repeat(grey.astype(np.uint8), 3, axis=1), classes


def brief(path=None, **more):
    return LogCLClassifier(path, settings=BRIEF, random_state=0, **more)


def test_images_of_any_size_and_features_are_the_same_to_it(backbone, pictures):
    x, y = pictures
    clf = brief(backbone=backbone).fit(x[:60], y[:60])
    assert clf.memory_.settings.backbone == backbone.spec
    assert clf.n_features_in_ == 24
    expected = clf.predict_proba(x[60:])
    assert expected.shape == (20, 3)
    assert (clf.predict(x[60:]) == clf.classes_[expected.argmax(axis=1)]).all()
    for same in (
        x[60:].transpose(0, 2, 3, 1),
        x[60:] / 255,
        x[60:, 0],
        backbone.features(x[60:]),
        backbone.features(x[60:]).astype(np.float64).tolist(),
    ):
        assert np.allclose(clf.predict_proba(same), expected, atol=1e-5)
    larger = np.repeat(np.repeat(x[60:], 2, axis=2), 2, axis=3)
    assert (clf.predict(larger) == clf.predict(x[60:])).mean() > 0.8
    photos = [Image.fromarray(image.transpose(1, 2, 0)) for image in x[60:]]
    assert clf.predict(photos).shape == (20,)


def test_it_learns(backbone, pictures):
    x, y = pictures
    clf = brief(backbone=backbone)
    clf.partial_fit(x[:40], y[:40]).partial_fit(backbone.features(x[40:]), y[40:])
    assert clf.memory_.n == 80
    assert clf.score(x, y) > 0.9
    assert len(set(clf.memory_.snapshot().everything()[1].tolist())) == 3


def test_nothing_is_loaded_before_fit(pictures, tmp_path):
    x, y = pictures
    clf = LogCLClassifier(backbone="no-such-network", path=tmp_path / "m.logcl")
    assert clone(clf).backbone == "no-such-network"
    with pytest.raises(BadSettings, match="there is no backbone 'no-such-network'"):
        clf.fit(x, y)
    assert not (tmp_path / "m.logcl").exists()


def test_an_estimator_of_an_existing_file(backbone, pictures, tmp_path):
    x, y = pictures
    first = brief(tmp_path / "m.logcl", backbone=backbone).fit(x[:60], y[:60])
    expected = first.predict(x[60:])
    again = LogCLClassifier(tmp_path / "m.logcl", backbone=backbone)
    assert (again.predict(x[60:]) == expected).all()
    assert again.memory_.backbone is backbone
    named = LogCLClassifier(tmp_path / "m.logcl", backbone="tiny")
    assert (named.predict(backbone.features(x[60:])) == expected).all()  # no network is needed for features
    with pytest.raises(BadSettings, match="computed by tiny, which cannot be had here"):
        LogCLClassifier(tmp_path / "m.logcl").predict(x[60:])
    with pytest.raises(BadSettings, match=r"features of tiny with weights .* not features of tiny with"):
        LogCLClassifier(tmp_path / "m.logcl", backbone=tiny_backbone(seed=1)).predict(x[60:])
    assert (
        LogCLClassifier(tmp_path / "m.logcl", backbone=backbone).partial_fit(x[60:], y[60:]).memory_.n == 80
    )


def test_a_memory_of_images_is_refused(backbone, pictures, tmp_path):
    x, y = pictures
    Memory.open(tmp_path / "m.logcl", (3, 24, 20), unit=1000).absorb(x, y)
    with pytest.raises(BadSettings, match="holds images, not features of tiny"):
        LogCLClassifier(tmp_path / "m.logcl", backbone=backbone).partial_fit(x, y)


def test_copies_and_pickles(backbone, pictures, tmp_path):
    x, y = pictures
    assert cross_val_score(brief(backbone=backbone), x, y, cv=2).mean() > 0.6  # clones
    for path in (None, tmp_path / "m.logcl"):
        clf = brief(path, backbone=backbone).fit(x[:60], y[:60])
        again = pickle.loads(pickle.dumps(clf))  # noqa: S301
        assert (again.predict_proba(x[60:]) == clf.predict_proba(x[60:])).all()
        assert again.memory_.backbone.spec == backbone.spec
        again.partial_fit(x[60:], y[60:])
        assert again.memory_.n == 80


def test_the_built_in_backbone(pictures, tmp_path):
    x, y = pictures
    clf = brief(backbone="efficientnet-lite0", image_shape=(3, 64, 64)).fit(x[:12], y[:12])
    assert clf.memory_.settings.input_shape == (3, 64, 64)
    assert clf.n_features_in_ == 1280
    joblib.dump(clf, tmp_path / "clf.joblib")
    assert (tmp_path / "clf.joblib").stat().st_size < 2e6  # the name is enough
    again = joblib.load(tmp_path / "clf.joblib")
    assert (again.predict(x[:12]) == clf.predict(x[:12])).all()
    given = brief(backbone=backbones.load("efficientnet-lite0", image_shape=(3, 64, 64)))
    copied = pickle.loads(pickle.dumps(given))  # noqa: S301
    assert copied.backbone.spec == clf.memory_.settings.backbone


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((80, 5)), r"X has shape \(80, 5\), like a table, which no backbone reads; give images"),
        (np.zeros((80, 24), np.int64), r"features have shape \(80, 24\) and type int64"),
        (np.full((80, 24), np.nan), "features 0 have NaN"),
        (np.zeros((80, 5, 8, 8)), "this memory takes"),
        (np.full((80, 3, 8, 8), 2.0), "float images must lie in"),
    ],
)
def test_what_is_refused(backbone, pictures, tmp_path, wrong, message):
    clf = brief(tmp_path / "m.logcl", backbone=backbone)
    with pytest.raises(BadInput, match=message):
        clf.fit(wrong, pictures[1])
    assert not (tmp_path / "m.logcl").exists()
    clf.fit(*pictures)
    with pytest.raises(BadInput, match=message):
        clf.predict(wrong)


def test_labels_are_counted_before_features_are_computed(pictures, monkeypatch):
    x, y = pictures
    backbone = tiny_backbone()
    monkeypatch.setattr(backbone, "network", None)  # computing would fail
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        brief(backbone=backbone).fit(x, y[:-1])
