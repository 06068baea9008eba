"""The file behind an estimator: replaced, interrupted, copied, moved, and used by several at once."""

import pickle
import shutil
import subprocess
import sys
import threading

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

from logcl import LogCLClassifier, Memory
from logcl.core.errors import BadInput, BadSettings, Busy, CannotWrite, NotAMemory
from logcl.integrations.memories import PathMemory, TemporaryMemory
from logcl.memory.file.sqlite import committing
from logcl.memory.presets import preset
from logcl.memory.settings import override

BRIEF = {"classifier.min_steps": 40, "classifier.epochs": 4}


def brief(path=None, **more) -> LogCLClassifier:
    return LogCLClassifier(path, settings=BRIEF, random_state=0, **more)


@pytest.fixture(scope="module")
def iris():
    return train_test_split(*load_iris(return_X_y=True), random_state=0)


def a_copy(clf):
    return pickle.loads(pickle.dumps(clf))  # noqa: S301 (made here)


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def images_of(n, size=8):
    return np.random.default_rng(n).integers(0, 256, (n, 1, size, size), dtype=np.uint8), np.arange(n) % 2


# Replaced files


OTHERS = {
    "scale": lambda path, X, y: brief(path).fit(1000 * X + 7, y),
    "columns": lambda path, X, y: brief(path).fit(np.hstack([X, X]), y),
    "labels": lambda path, X, y: brief(path).fit(X, y.astype(str)),
    "images": lambda path, X, y: LogCLClassifier(path, image_shape=(1, 8, 8)).partial_fit(*images_of(40)),
    "no estimator": lambda path, X, y: Memory.open(path, (1, 1, 4)).absorb(X.reshape(-1, 1, 1, 4) / 10, y),
}
"""Memories that an estimator of iris must not accept as its own."""


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("how", [lambda clf: clf, a_copy], ids=["estimator", "pickle"])
def test_replaced_file_is_refused(tmp_path, iris, how, kind):
    X, test, y, _ = iris
    path, other = tmp_path / "m.logcl", tmp_path / "other.logcl"
    clf = brief(path).partial_fit(X, y)
    if kind != "columns":
        clf.predict(test)
    clf = how(clf)
    OTHERS[kind](other, X, y)
    other.replace(path)
    content = path.read_bytes()
    for call in (lambda: clf.predict(test), lambda: clf.partial_fit(X, y), lambda: clf.memory_):
        with pytest.raises(NotAMemory, match=r"m\.logcl is another memory than the one that was used before"):
            call()
    with pytest.raises(
        (CannotWrite, BadSettings), match=r"which fit would have to discard|has other settings"
    ):
        clf.fit(X, y)
    assert path.read_bytes() == content
    assert LogCLClassifier(path).memory_.n > 0  # a new estimator takes what is there


def test_image_memory_with_the_same_settings_is_another_one(tmp_path):
    """Only their samples differ."""
    for name, n in (("m.logcl", 40), ("other.logcl", 41)):
        Memory.open(tmp_path / name, (1, 8, 8)).absorb(*images_of(n))
    clf = LogCLClassifier(tmp_path / "m.logcl")
    assert clf.memory_.n == 40
    (tmp_path / "other.logcl").replace(tmp_path / "m.logcl")
    with pytest.raises(NotAMemory, match="is another memory"):
        clf.partial_fit(*images_of(3))
    assert Memory(tmp_path / "m.logcl").n == 41


def test_file_replaced_while_a_task_is_absorbed(tmp_path, iris, monkeypatch):
    X, _, y, _ = iris
    path, other = tmp_path / "m.logcl", tmp_path / "other.logcl"
    clf = brief(path).partial_fit(X, y)
    brief(other).partial_fit(1000 * X + 7, y)
    absorb = Memory.absorb

    def replaced_first(memory, *given, **more):
        other.replace(path)
        return absorb(memory, *given, **more)

    monkeypatch.setattr(Memory, "absorb", replaced_first)
    with pytest.raises(NotAMemory, match="is another memory"):
        clf.partial_fit(X, y)
    assert Memory(path).n == len(X)


def test_estimator_follows_its_memory(tmp_path, iris):
    """Through tasks by others, a copy in its place, and a backup of an earlier moment."""
    X, test, y, truth = iris
    path = tmp_path / "m.logcl"
    clf = brief(path).partial_fit(X[:60], y[:60])
    shutil.copy(path, tmp_path / "backup.logcl")
    brief(path).partial_fit(X[60:], y[60:])
    assert clf.score(test, truth) > 0.8
    shutil.copy(path, tmp_path / "copy.logcl")
    (tmp_path / "copy.logcl").replace(path)
    assert clf.partial_fit(test[:5], truth[:5]).memory_.n == len(X) + 5
    (tmp_path / "backup.logcl").replace(path)
    assert clf.memory_.n == 60
    assert clf.score(test, truth) > 0.8


def test_deleted_and_fitted_again(tmp_path, iris):
    X, test, y, truth = iris
    path = tmp_path / "m.logcl"
    old = brief(path).fit(X, y)
    path.unlink()
    new = brief(path).fit(1000 * X + 7, y)
    with pytest.raises(NotAMemory, match="is another memory"):
        old.predict(test)
    assert new.score(1000 * test + 7, truth) > 0.8
    path.unlink()
    assert old.fit(1000 * X + 7, y).score(1000 * test + 7, truth) > 0.8


# Another path


def test_set_path_after_fitting(tmp_path, iris):
    X, test, y, _ = iris
    clf = brief(tmp_path / "m.logcl").partial_fit(X, y)
    answer = clf.predict(test)
    for path in (tmp_path / "none.logcl", None):
        clf.set_params(path=path)
        for call in (lambda: clf.predict(test), lambda: clf.partial_fit(X, y)):
            with pytest.raises((NotAMemory, BadSettings), match=r"none\.logcl no longer exists|path is None"):
                call()
    assert files_in(tmp_path) == ["m.logcl"]
    brief(tmp_path / "b.logcl").partial_fit(10 * X, y)
    with pytest.raises(NotAMemory, match=r"b\.logcl is another memory"):
        clf.set_params(path=tmp_path / "b.logcl").partial_fit(X, y)
    (tmp_path / "m.logcl").replace(tmp_path / "moved.logcl")
    assert np.array_equal(clf.set_params(path=tmp_path / "moved.logcl").predict(test), answer)
    assert clf.set_params(path=tmp_path / "new.logcl").fit(X, y).memory_.n == len(X)
    assert Memory(tmp_path / "moved.logcl").n == Memory(tmp_path / "b.logcl").n == len(X)


def test_path_given_to_an_estimator_with_a_temporary_memory(tmp_path, iris):
    X, test, y, _ = iris
    clf = brief().partial_fit(X, y).set_params(path=str(tmp_path / "m.logcl"))
    for call in (lambda: clf.predict(test), lambda: clf.partial_fit(X, y)):
        with pytest.raises(BadSettings, match="this estimator was fitted with path = None; set it back"):
            call()
    assert files_in(tmp_path) == []
    assert clf.set_params(path=None).predict(test).shape == (38,)


def test_clones_attach_to_what_is_there(tmp_path, iris):
    X, _, y, _ = iris
    clf = brief(tmp_path / "m.logcl").partial_fit(X, y)
    brief(tmp_path / "other.logcl").partial_fit(10 * X, y.astype(str))
    (tmp_path / "other.logcl").replace(tmp_path / "m.logcl")
    assert clone(clf).partial_fit(10 * X, y.astype(str)).memory_.n == 2 * len(X)


# All or nothing


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("kind", ["long label", "table", "settings"])
def test_refused_first_task_leaves_no_file(tmp_path, iris, method, kind):
    X, _, y, _ = iris
    y = np.where(y == 0, "x" * 2_000, "y") if kind == "long label" else y
    more = {"settings": {"codec.psnr": -1}} if kind == "settings" else {}
    X = X + np.nan if kind == "table" else X
    clf = LogCLClassifier(tmp_path / "m.logcl", **more)
    with pytest.raises(ValueError, match=r"is longer than|NaN|psnr"):
        getattr(clf, method)(X, y)
    assert files_in(tmp_path) == []
    assert not hasattr(clf, "classes_")
    clf = brief(tmp_path / "m.logcl").partial_fit(1000 * iris[0], iris[2])
    assert clf.score(1000 * iris[1], iris[3]) > 0.8  # with the scale of its own first task


class Stop(BaseException):
    pass


def interrupt_at(number, call):
    """Raise `Stop` at the start of the given Python function call of LogCL; whether it was reached."""
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if event == "call" and "logcl" in frame.f_code.co_filename:
            seen += 1
            if seen == number:
                sys.settrace(None)
                raise Stop

    sys.settrace(trace)
    try:
        call()
    except Stop:
        return True
    finally:
        sys.settrace(None)
    return seen >= number


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_first_task_interrupted_anywhere(tmp_path, iris, method):
    """Afterwards the file is as before, or the task is in it with its classifier."""
    X, _, y, _ = iris
    path = tmp_path / "m.logcl"
    tiny = {"classifier.min_steps": 1, "classifier.epochs": 1}
    rng, number, complete = np.random.default_rng(0), 0, 0
    while True:
        number += int(rng.integers(1, 25))
        clf = LogCLClassifier(path, settings=tiny, random_state=0, unit=64)
        if not interrupt_at(number, lambda clf=clf: getattr(clf, method)(X, y)):
            break
        assert set(files_in(tmp_path)) <= {"m.logcl"}
        if path.exists():
            complete += 1
            assert Memory(path).n == len(X)
            path.unlink()
    assert complete < 20  # only after the last step
    assert number > 100
    assert Memory(path).verify() == []
    assert files_in(tmp_path) == ["m.logcl"]


def test_interrupted_fit_on_an_empty_memory(tmp_path, monkeypatch):
    x, y = images_of(30)
    path = tmp_path / "m.logcl"
    quick = {"codec.name": "cosine", "classifier.min_steps": 1, "classifier.epochs": 1}
    Memory.create(path, override(preset("fast", (1, 8, 8)), quick))
    digest = Memory(path).digest

    def stop(*given):
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr("logcl.memory.classifier.Classifier.train", stop)
        with pytest.raises(Stop):
            LogCLClassifier(path).fit(x, y)
    assert Memory(path).digest == digest
    inode = path.stat().st_ino
    clf = LogCLClassifier(path).fit(x, y)
    assert clf.memory_.n == 30
    assert clf.memory_.verify() == []
    assert path.stat().st_ino == inode
    assert files_in(tmp_path) == ["m.logcl"]


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_second_first_writer_is_refused(tmp_path, iris, method):
    X, _, y, _ = iris
    path = tmp_path / "m.logcl"
    with PathMemory(path).file.writing(), pytest.raises(Busy, match="is being written by"):
        getattr(brief(path), method)(X, y)
    assert files_in(tmp_path) == []


# Several at once


def test_two_estimators_on_one_path(tmp_path, iris):
    X, test, y, _ = iris
    one, two = brief(tmp_path / "m.logcl"), brief(tmp_path / "m.logcl")
    one.partial_fit(X[y == 0], y[y == 0])
    two.partial_fit(X[y == 1], y[y == 1])
    one.partial_fit(X[y == 2], y[y == 2])
    assert one.memory_.n == two.memory_.n == len(X)
    assert np.array_equal(one.predict(test), two.predict(test))
    assert two.classes_.tolist() == [0, 1, 2]
    with pytest.raises(BadInput, match="has int labels"):
        two.partial_fit(X, y.astype(str))


@pytest.mark.filterwarnings("ignore:.*are clipped")
@pytest.mark.parametrize("with_path", [False, True])
def test_predictions_and_pickles_while_a_thread_absorbs(tmp_path, iris, with_path):
    X, test, y, _ = iris
    tiny = {"classifier.min_steps": 20, "classifier.epochs": 1}
    path = tmp_path / "m.logcl" if with_path else None
    clf = LogCLClassifier(path, settings=tiny, random_state=0, unit=8).partial_fit(X[:10], y[:10])

    def absorb():
        for number in range(10, 40):  # each task brings a class that sorts before all others
            clf.partial_fit(1000.0 * number + X[number : number + 2], [-number, -number])

    thread = threading.Thread(target=absorb)
    thread.start()
    while thread.is_alive():
        again = a_copy(clf)
        assert again.memory_.verify() == []
        assert set(clf.predict(X[:10])) <= {0, 1, 2, *range(-40, 0)}
        with pytest.raises(BadInput):
            clf.partial_fit(X, y.astype(str))
    thread.join()
    assert clf.memory_.n == 70  # no task failed
    assert clf.memory_.verify() == []
    assert len(clf.classes_) == clf.predict_proba(test).shape[1] == 33


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_parallel_predictions(tmp_path, iris, backend):
    X, test, y, _ = iris
    for path in (None, tmp_path / f"{backend}.logcl"):
        clf = brief(path).fit(X, y)
        answers = joblib.Parallel(2, backend)(joblib.delayed(clf.predict)(test) for _ in range(4))
        assert all(np.array_equal(answer, clf.predict(test)) for answer in answers)


def test_copying_keeps_the_locks_of_a_commit(iris):
    """POSIX releases all locks of a process on a file when it closes that file."""
    clf = brief().partial_fit(iris[0], iris[2])
    path = clf.memory_.path
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    with committing(path) as database:
        database.execute("DELETE FROM parts WHERE name = 'nothing'")
        pickle.dumps(clf)
        ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert "database is locked" in ran.stderr


def test_copy_in_the_middle_of_a_commit_is_of_the_last_one(iris):
    clf = brief().partial_fit(iris[0], iris[2])
    with committing(clf.memory_.path) as database:
        database.execute("DELETE FROM parts")
        again = a_copy(clf)
        database.execute("ROLLBACK")
        database.execute("BEGIN")
    assert again.memory_.digest == clf.memory_.digest
    assert again.memory_.verify() == []


def test_unfitted_pickle_attaches_when_it_is_used(tmp_path, iris):
    clf = a_copy(brief(tmp_path / "m.logcl"))
    with pytest.raises(NotFittedError):
        clf.predict(iris[1])
    brief(tmp_path / "m.logcl").partial_fit(iris[0], iris[2])
    assert clf.predict(iris[1]).shape == (38,)


def test_temporary_memory_that_is_empty_cannot_be_pickled():
    with pytest.raises(NotAMemory, match="does not exist"):
        pickle.dumps(TemporaryMemory())
