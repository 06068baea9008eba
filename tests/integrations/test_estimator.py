"""LogCLClassifier: scikit-learn's own checks, then everything they do not cover."""

import copy
import gc
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path
from unittest import SkipTest

import joblib
import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    parametrize_with_checks,
)

from logcl import Classifier, LogCLClassifier, Memory
from logcl.core.errors import BadInput, BadSettings, CannotWrite, Damaged, NotAMemory
from logcl.core.inputs import as_pixels
from logcl.integrations.sklearn.estimator_memory import NOTE, ColumnScale

SKIPPED = {"check_array_api_input"}
"""scipy reads SCIPY_ARRAY_API when it is imported, so this check runs in another process."""


BRIEF = {"classifier.min_steps": 40, "classifier.epochs": 4}
"""Settings of a classifier that trains quickly and still gets most of iris right."""


def brief(path: Path | str | None = None, **more: object) -> LogCLClassifier:
    return LogCLClassifier(path, settings=BRIEF, random_state=0, **more)


@pytest.fixture(scope="module")
def iris():
    return train_test_split(*load_iris(return_X_y=True), random_state=0)


@pytest.fixture
def flat(digits):
    x, y = digits
    return x.reshape(len(x), -1), y


needs_another_process = pytest.mark.xdist_group("another process")  # once, not once per worker


@dataclass(frozen=True)
class Elsewhere:
    """The input of another process, and its results."""

    clf: LogCLClassifier
    answer: np.ndarray
    folder: Path
    found: dict


@pytest.fixture(scope="module")
def elsewhere(iris, tmp_path_factory) -> Elsewhere:
    """One process for all tests that need another one, because it is slow to start."""
    code = """
        import json, joblib, numpy as np
        from sklearn.utils.estimator_checks import check_array_api_input as check
        from logcl import LogCLClassifier

        found, test = {}, np.load("test.npy")
        clf = LogCLClassifier("m.logcl")
        found["by path"] = [clf.predict(test).tolist(), clf.classes_.tolist(), clf.n_features_in_]
        clf.partial_fit(test[:5], [True] * 5)
        found["pickled"] = joblib.load("clf.joblib").predict_proba(test).tolist()
        check("LogCLClassifier", LogCLClassifier(), array_namespace="numpy", expect_only_array_outputs=False)
        found["check"] = "passed"
        found["left open"] = str(LogCLClassifier().partial_fit(test, test[:, 0] > 0).memory_.path)
        print(json.dumps(found))
    """
    train, test, labels, _ = iris
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "tmp").mkdir()
    first = labels < 2
    clf = brief(folder / "m.logcl")
    clf.partial_fit(train[first] * 1000, labels[first] == 1)
    answer = clf.predict(test * 1000)
    np.save(folder / "test.npy", test * 1000)
    joblib.dump(brief().fit(train, labels), folder / "clf.joblib")
    environment = {"OMP_NUM_THREADS": "1", "SCIPY_ARRAY_API": "1", "TMPDIR": str(folder / "tmp")}
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return Elsewhere(clf, answer, folder, json.loads(ran.stdout))


@parametrize_with_checks([LogCLClassifier()])
def test_scikit_learns_checks(estimator, check):
    try:
        check(estimator)
    except SkipTest:
        assert check.func.__name__ in SKIPPED


@needs_another_process
def test_check_in_another_process(elsewhere):
    assert elsewhere.found["check"] == "passed"


def test_column_names_must_not_change():
    pytest.importorskip("pandas", reason="pandas is not a dependency of LogCL")
    check_dataframe_column_names_consistency("LogCLClassifier", LogCLClassifier())


# Tables


def test_accuracy_on_a_table(iris):
    train, test, labels, truth = iris
    clf = LogCLClassifier(random_state=0).fit(train, labels)
    assert clf.score(test, truth) > 0.9
    assert clf.memory_.n == len(train)
    assert clf.memory_.verify() == []


@pytest.mark.parametrize("factor", [1e-200, 1e-6, 1.0, 1e9, 1e200])
def test_columns_may_have_any_scale_and_offset(iris, factor):
    train, test, labels, truth = iris
    clf = LogCLClassifier(random_state=0).fit(factor * (train + 3), labels)
    assert clf.score(factor * (test + 3), truth) > 0.9


def test_classes_far_from_the_first_task_can_be_distinguished():
    """Iris class by class: the later ones are up to thirty spreads away from the first."""
    X, y = load_iris(return_X_y=True)
    clf = LogCLClassifier(random_state=0)
    for label in range(3):
        clf.partial_fit(X[y == label], y[y == label])
    assert clf.score(X, y) > 0.93


def test_extreme_values_are_clipped_with_a_warning(iris):
    train, _, labels, _ = iris
    clf = brief().partial_fit(train, labels)
    with pytest.warns(UserWarning, match="1 of 4 values are more than 100 spreads away"):
        clf.partial_fit([[1e9, 3.0, 4.0, 1.0]], [1])
    assert clf.predict([[1e300, -1e300, 0, 0]]).shape == (1,)


def test_scale_of_constant_sparse_and_huge_columns():
    columns = [np.zeros(9), np.full(9, -7.0), [0] * 8 + [5], 1e300 * np.linspace(-1, 1, 9)]
    table = np.array(columns, dtype=float).T
    scale = ColumnScale.fit(table)
    assert scale.centre[:3] == (0, -7, 0)
    assert scale.spread[:3] == pytest.approx((1, 7, 5 * 1.4826))
    images = scale.images(table, (1, 1, 6))
    assert np.isfinite(images).all()
    assert (images[:, 0, 0, 4:] == 0.5).all()  # unused pixels
    assert len(np.unique(images[:, 0, 0, 3])) == 9


@pytest.mark.parametrize("features", [1, 2, 33, 4097])
def test_any_number_of_columns(features):
    X = np.random.default_rng(0).normal(size=(60, features))
    y = X[:, 0] > 0
    clf = LogCLClassifier(random_state=0, settings={"classifier.min_steps": 60}, unit=16).fit(X, y)
    assert clf.score(X, y) > 0.9


# Labels


@pytest.mark.parametrize(
    "names",
    [
        ["b", "a"],
        [7, -3],
        [2.0, 1.0],
        [True, False],
        np.array([3, 1], np.uint8),
        np.array(["x", "longer"], dtype=object),
    ],
)
def test_labels_keep_their_type(tmp_path, iris, names):
    train, _, labels, _ = iris
    y = np.asarray(names)[(labels == 0).astype(int)]
    clf = brief(tmp_path / "m.logcl").fit(train, y)
    assert np.array_equal(clf.classes_, np.unique(y))
    assert clf.predict(train).dtype == clf.classes_.dtype == np.asarray(names).dtype
    again = LogCLClassifier(tmp_path / "m.logcl").predict(train)
    assert again.dtype.kind == np.array(list(names)).dtype.kind.replace("u", "i")
    assert (again == y).mean() > 0.98


def test_announced_classes_have_probability_zero(iris):
    train, test, labels, _ = iris
    two = labels < 2
    clf = brief().partial_fit(train[two], labels[two], classes=[2, 1, 0, 9])
    assert clf.classes_.tolist() == [0, 1, 2, 9]
    probabilities = clf.predict_proba(test)
    assert (probabilities[:, 2:] == 0).all()
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    clf.partial_fit(train[~two], labels[~two])
    assert (clf.predict(test) == 2).any()


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([0.5, 1.5], "Unknown label type: continuous"),
        ([2.0**63, 1.0], "Unknown label type: continuous"),
        ([None, 1], "Unknown label type"),
        ([np.nan, 1], "contains NaN"),
    ],
)
def test_invalid_labels(y, sentence):
    with pytest.raises(ValueError, match=sentence):
        LogCLClassifier().fit([[1.0], [2.0]], y)


def test_one_type_of_labels_per_memory(iris):
    train, _, labels, _ = iris
    clf = brief().fit(train, labels)
    with pytest.raises(BadInput, match="has int labels, and the labels in y are float; use one type"):
        clf.partial_fit(train, labels.astype(float))
    with pytest.raises(BadInput, match="classes are str, and the labels in y are int; use one type"):
        clf.partial_fit(train, labels, classes=["a"])
    assert clf.memory_.n == len(train)


# Images


def test_images_may_be_flattened_or_not(digits, flat, quick):
    x, y = digits
    rows, _ = flat
    forms = [rows, rows / 255, x, x[:, 0], x / 255]
    answers = []
    for form in forms:
        clf = LogCLClassifier(image_shape=(1, 8, 8), settings=quick, random_state=0).fit(form[:200], y[:200])
        answers.append(clf.predict_proba(rows[200:300]))
        assert clf.n_features_in_ == 64
        assert np.array_equal(clf.predict_proba(form[200:300]), answers[-1])
    assert all(np.array_equal(answer, answers[0]) for answer in answers)


def test_image_shape_is_inferred(digits, quick):
    clf = LogCLClassifier(settings=quick).fit(digits[0][:20], digits[1][:20])
    assert clf.memory_.settings.image_shape == (1, 8, 8)
    with pytest.raises(BadInput, match=r"X has shape \(20, 8, 1, 8\); give rows"):
        LogCLClassifier().fit(digits[0][:20].reshape(20, 8, 1, 8), digits[1][:20])


def test_images_in_every_form_give_the_same_memory(digits, quick):
    x, y = digits[0][:20], digits[1][:20]
    colour = np.repeat(x, 3, axis=1)
    pictures = [Image.fromarray(image[0]) for image in x]
    for size, forms, shape in (
        (
            8,
            [x, x[:, 0], x.reshape(20, 8, 8, 1), x.reshape(20, 64), torch.from_numpy(x), pictures],
            (1, 8, 8),
        ),
        ("8x8", [colour, colour.transpose(0, 2, 3, 1), colour.reshape(20, -1)], (3, 8, 8)),
        (None, [x.reshape(20, 8, 8, 1)], (1, 8, 8)),
    ):
        for form in forms:
            clf = LogCLClassifier(image_shape=size, settings=quick, random_state=0).partial_fit(form, y)
            assert clf.memory_.settings.image_shape == shape
            assert np.array_equal(clf.memory_.snapshot().buffer.x, colour if shape[0] == 3 else x)
    clf = LogCLClassifier(image_shape=4, settings={**quick, "fit": "pad"}, random_state=0).fit(pictures, y)
    assert clf.memory_.settings.fit == "pad"
    assert np.array_equal(
        clf.predict_proba(pictures), clf.predict_proba(as_pixels(pictures, (1, 4, 4), "pad"))
    )
    with pytest.raises(BadInput, match="X holds PIL images; give image_shape"):
        LogCLClassifier().fit(pictures, y)


@pytest.mark.parametrize(
    ("shape", "form", "error", "sentence"),
    [
        ((1, 8, 8), (5, 60), BadInput, "X has 60 features, but image_shape = \\(1, 8, 8\\) has 64 values"),
        ((1, 8, 8), (5, 1, 4, 16), BadInput, "the images of this estimator are \\(1, 8, 8\\)"),
        ([1, 8, 8], (5, 1, 4, 16), BadInput, "the images of this estimator are \\(1, 8, 8\\)"),
        ((8, 8), (5, 65), BadInput, "X has 65 features, but image_shape = \\(1, 8, 8\\) has 64 values"),
        ("8by8", (5, 64), BadSettings, "image_shape = 8by8 is not a size of images"),
        ((0, 8, 8), (5, 64), BadSettings, "image_shape = \\(0, 8, 8\\) is not"),
    ],
)
def test_images_of_another_shape_are_refused(shape, form, error, sentence):
    with pytest.raises(error, match=sentence):
        LogCLClassifier(image_shape=shape).fit(np.zeros(form, np.uint8), range(5))


def test_images_out_of_range_create_no_file(tmp_path, flat):
    clf = LogCLClassifier(tmp_path / "m.logcl", image_shape=(1, 8, 8))
    with pytest.raises(BadInput, match="float images must lie in"):
        clf.partial_fit(flat[0][:5] * 16.0, flat[1][:5])
    assert list(tmp_path.iterdir()) == []


def test_tables_and_images_do_not_mix(iris, digits):
    clf = brief().fit(iris[0], iris[2])
    with pytest.raises(BadInput, match="give rows"):
        clf.predict(digits[0])


# Paths


def test_memory_created_without_an_estimator(tmp_path, digits, flat, quick):
    """Of images with strings as labels."""
    path = tmp_path / "pets.logcl"
    names = np.array([f"pet {label}" for label in digits[1]])
    Memory.open(path, (1, 8, 8), settings=quick).absorb(digits[0][:50], names[:50])
    clf = LogCLClassifier(path=path)
    clf.partial_fit(flat[0][50:300], names[50:300])
    assert clf.predict(flat[0][:5]).dtype.kind == "U"
    assert clf.memory_.n == 300
    assert clf.classes_.tolist() == sorted(set(names))
    assert np.array_equal(Classifier.load(Memory(path)).predict(digits[0]), clf.predict(flat[0]))


@needs_another_process
def test_another_process_continues_a_table(elsewhere, iris):
    assert elsewhere.found["by path"] == [elsewhere.answer.tolist(), [False, True], 4]
    clf, (_, test, labels, truth) = elsewhere.clf, iris
    assert clf.memory_.n == (labels < 2).sum() + 5  # including what the other process absorbed
    assert not clf.predict(test * 1000)[truth == 0].any()


def test_fit_never_overwrites_a_file(tmp_path, iris):
    train, _, labels, _ = iris
    clf = brief(tmp_path / "m.logcl").fit(train, labels)
    before = clf.memory_.digest
    with pytest.raises(
        CannotWrite, match="holds 112 samples, which fit would have to discard; call partial_fit"
    ):
        clf.fit(train, labels)
    with pytest.raises(CannotWrite, match="path=None for cross-validation"):
        clone(clf).fit(train, labels)
    assert clf.memory_.digest == before
    assert clf.predict(train).shape == (112,)


def test_fit_accepts_an_empty_memory(tmp_path, digits, flat, quick):
    Memory.open(tmp_path / "m.logcl", (1, 8, 8), settings=quick)
    clf = LogCLClassifier(tmp_path / "m.logcl")
    with pytest.raises(NotFittedError):
        clf.predict(flat[0])
    assert clf.fit(flat[0][:30], flat[1][:30]).memory_.n == 30


def test_settings_must_agree_with_an_existing_memory(tmp_path, iris):
    path = tmp_path / "m.logcl"
    brief(path).partial_fit(iris[0], iris[2])
    with pytest.raises(BadSettings, match="has other settings than seed = 1"):
        LogCLClassifier(path, random_state=1).partial_fit(iris[0], iris[2])
    with pytest.raises(BadSettings, match="has other settings than unit = 7"):
        LogCLClassifier(path, unit=7).predict(iris[0])
    with pytest.raises(BadSettings, match="preset"):
        LogCLClassifier(path, preset="paper").predict(iris[0])


def test_path_without_a_memory(tmp_path, iris):
    (tmp_path / "text").write_text("hello" * 500)
    clf = LogCLClassifier(tmp_path / "text")
    for call in (clf.predict, lambda X: clf.fit(X, iris[2])):
        with pytest.raises(NotAMemory, match="is not a LogCL memory"):
            call(iris[0])
    with pytest.raises(NotFittedError):
        LogCLClassifier(tmp_path / "nothing").predict(iris[0])


@pytest.mark.parametrize(
    "note", ["{", '{"labels":"complex"}', '{"labels":"int","scale":{"centre":[1],"spread":[]}}']
)
def test_invalid_note_is_refused(tmp_path, iris, note):
    from logcl.memory.presets import preset

    Memory.create(tmp_path / "m.logcl", preset("fast", (1, 1, 4)), {NOTE: note})
    with pytest.raises(Damaged, match="the note 'sklearn'"):
        LogCLClassifier(tmp_path / "m.logcl").partial_fit(iris[0], iris[2])


def test_global_model_is_trained_once_and_only_when_needed(tmp_path, iris, monkeypatch):
    trained = []
    train = Classifier.train
    monkeypatch.setattr(Classifier, "train", lambda *given: trained.append(1) or train(*given))
    X, _, y, _ = iris
    clf = brief(tmp_path / "m.logcl")
    for part in np.array_split(np.arange(len(X)), 4):
        clf.partial_fit(X[part], y[part])
    assert trained == []
    clf.predict(X)
    clf.predict_proba(X)
    assert trained == [1]
    assert np.array_equal(LogCLClassifier(tmp_path / "m.logcl").predict(X), clf.predict(X))
    assert trained == [1]  # loaded from the file
    Memory.open(tmp_path / "m.logcl").absorb(np.zeros((1, 1, 1, 4)), [17])  # by another program
    assert clf.predict_proba(X).shape == (len(X), 4)
    assert clf.classes_.tolist() == [0, 1, 2, 17]
    assert trained == [1, 1]


# Temporary memories, pickles and copies


def test_temporary_memory_is_deleted_with_its_estimator(iris):
    clf = brief().fit(iris[0], iris[2])
    first = clf.memory_.path.parent
    clf.fit(iris[0], iris[2])
    gc.collect()
    assert not first.exists()
    second = clf.memory_.path.parent
    assert second.exists()
    del clf
    gc.collect()
    assert not second.exists()


@needs_another_process
def test_temporary_memory_is_deleted_when_the_process_ends(elsewhere):
    assert Path(elsewhere.found["left open"]).parent.parent == elsewhere.folder / "tmp"
    assert list((elsewhere.folder / "tmp").iterdir()) == []


@needs_another_process
def test_pickle_without_a_path_contains_the_memory(elsewhere, iris):
    train, test, labels, _ = iris
    clf = brief().fit(train, labels)
    answer = clf.predict_proba(test * 1000)
    pickled = pickle.dumps(clf)
    assert b"torch" not in pickled
    del clf
    gc.collect()
    again = pickle.loads(pickled)  # noqa: S301 (made here)
    assert np.array_equal(again.predict_proba(test * 1000), answer)
    assert np.allclose(elsewhere.found["pickled"], answer, atol=1e-6)


def test_pickle_with_a_path_is_a_reference(tmp_path, iris, monkeypatch):
    train, test, labels, _ = iris
    monkeypatch.chdir(tmp_path)
    clf = brief("m.logcl").fit(train, labels)
    pickled = pickle.dumps(clf)
    assert str(tmp_path / "m.logcl").encode() in pickled
    assert len(pickled) < 2000
    monkeypatch.chdir("/")
    again = pickle.loads(pickled)  # noqa: S301 (made here)
    assert np.array_equal(again.predict_proba(test), clf.predict_proba(test))
    assert again.partial_fit(test, [2] * len(test)).memory_.n == clf.memory_.n == len(train) + len(test)
    assert again.get_params() == clf.get_params()
    (tmp_path / "m.logcl").unlink()
    for call in (again.predict, lambda X: again.partial_fit(X, [2] * len(X))):
        with pytest.raises(NotAMemory, match="no longer exists, and this estimator only refers to it"):
            call(test)


def test_copies_are_independent(iris):
    train, test, labels, _ = iris
    clf = brief().fit(train, labels)
    twin = copy.deepcopy(clf)
    twin.partial_fit(test, [7] * len(test))
    assert 7 in twin.predict(test)
    path = clf.memory_.path
    del clf
    gc.collect()
    assert not path.exists()
    assert twin.memory_.n == len(train) + len(test)
    assert not hasattr(clone(twin), "classes_")


def _in_a_fork(clf, X, pipe):
    clf.partial_fit(X, [9] * len(X))
    pipe.send(clf.memory_.n)
    pipe.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_does_not_change_its_parents_memory(iris):
    clf = brief().partial_fit(iris[0], iris[2])
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_a_fork, args=(clf, iris[1], there))
    child.start()
    assert here.poll(60)
    assert here.recv() == len(iris[0]) + len(iris[1])
    child.join(60)
    assert clf.memory_.n == len(iris[0])
    assert clf.memory_.verify() == []


# Pipelines, searches, threads, randomness


def test_pipelines_searches_and_cross_validation():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:150], y[:150]
    pipeline = make_pipeline(StandardScaler(), LogCLClassifier(random_state=0))
    scores = cross_val_score(pipeline, X, y, cv=2)
    assert scores.mean() > 0.9
    grid = {
        "logclclassifier__unit": [32, None],
        "logclclassifier__settings": [{"classifier.min_steps": 100}],
    }
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2, error_score="raise").fit(X, y)
    assert search.best_score_ > 0.9
    best = search.best_estimator_[-1]
    assert best.memory_.n == 150
    assert best.memory_.path.exists()
    assert (search.predict(X) == y).mean() > 0.9


def test_threads_give_the_same_predictions(iris):
    train, test, labels, _ = iris
    wanted = brief().fit(train, labels).predict_proba(test)
    found: dict[int, np.ndarray] = {}

    def run(number: int) -> None:
        found[number] = brief().fit(train, labels).predict_proba(test)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[number], wanted) for number in range(3))


def test_random_state(iris):
    train, test, labels, _ = iris

    def answer(random_state):
        return brief().set_params(random_state=random_state).fit(train, labels).predict_proba(test)

    same = answer(5)
    assert np.array_equal(answer(np.int64(5)), same)
    assert not np.array_equal(answer(6), same)
    assert np.array_equal(answer(np.random.RandomState(1)), answer(np.random.RandomState(1)))
    assert not np.array_equal(answer(None), answer(None))


# Errors change nothing


class Stop(BaseException):
    pass


def test_interrupted_task_changes_nothing(tmp_path, iris, monkeypatch):
    train, test, labels, truth = iris
    clf = brief(tmp_path / "m.logcl", unit=16).fit(train, labels)
    before, digest, answer = dict(vars(clf)), clf.memory_.digest, clf.predict_proba(test)

    def stop(*given: object) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr("logcl.memory.file.memory_file.MemoryFile.commit", stop)
        with pytest.raises(Stop):
            clf.partial_fit(test, truth + 10)
    assert vars(clf) == before
    assert clf.memory_.digest == digest
    assert np.array_equal(clf.predict_proba(test), answer)
    clf.partial_fit(test, truth + 10)
    assert clf.memory_.n == 150
    assert clf.classes_.tolist() == [0, 1, 2, 10, 11, 12]


def test_failed_fit_changes_nothing(iris):
    train, test, labels, _ = iris
    clf = brief().fit(train, labels)
    answer = clf.predict_proba(test)
    with pytest.raises(ValueError, match="NaN"):
        clf.fit(np.full((4, 9), np.nan), [1, 2, 3, 4])
    with pytest.raises(BadSettings, match="there is no setting 'nonsense'"):
        clf.set_params(settings={"nonsense": 1}).fit(train, labels)
    assert np.array_equal(clf.predict_proba(test), answer)


def test_unknown_presets_and_settings_are_refused(iris):
    with pytest.raises(BadSettings, match="there is no preset 'slow'"):
        LogCLClassifier(preset="slow").fit(iris[0], iris[2])
    with pytest.raises(TypeError, match="sample_weight"):
        LogCLClassifier().fit(iris[0], iris[2], sample_weight=iris[2])


def test_table_with_the_published_method(iris, quick):
    quick = {**quick, "codec.name": "index", "codec.warm_up_epochs": 1, "labels.training.min_steps": 0}
    clf = LogCLClassifier(preset="paper-cpu", unit=64, settings=quick, random_state=0).fit(iris[0], iris[2])
    assert clf.memory_.settings.codec.network == "superposed"
    assert clf.predict(iris[1]).shape == (38,)
