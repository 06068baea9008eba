"""One contract for every method."""

import numpy as np
import pytest

from logcl import methods
from logcl.errors import BadSettings, NotTrained
from logcl.methods import METHODS, Method, Problem
from logcl.settings import override, preset
from logcl.streams import Task

NAMES = tuple(map(str, range(10)))
FORGETS = {"finetune"}
QUICK = {"generator": {"min_steps": 300, "learning_rate": 3e-3}}
OPTIONS = {"dgr-vae": QUICK, "hypercl": QUICK}
"""Only to save time: generators that are rivals' own do not follow the settings below."""


def tasks(digits, *groups: tuple[int, ...], limit: int = 160) -> list[Task]:
    x, y = digits
    return [
        Task(x[rows], y[rows]) for rows in (np.flatnonzero(np.isin(y, group))[:limit] for group in groups)
    ]


def make(name: str, folder, seed: int = 0) -> Method:
    settings = override(
        preset("fast", (1, 8, 8)),
        {
            "seed": seed,
            "generator.min_steps": 150,
            "classifier.min_steps": 60,
            "classifier.epochs": 5,
            "unit": 64,
        },
    )
    return methods.create(name, Problem(settings, NAMES, folder), OPTIONS.get(name))


@pytest.mark.parametrize("name", METHODS)
class TestEveryMethod:
    def test_learns_two_tasks(self, name, tmp_path, digits):
        method = make(name, tmp_path)
        first, second = tasks(digits, (0, 1), (2, 3))
        method.learn(first)
        assert (method.predict(first.x) == first.y).mean() > 0.9
        method.learn(second)
        assert (method.predict(second.x) == second.y).mean() > 0.9
        remembered = (method.predict(first.x) == first.y).mean()
        assert remembered < 0.2 if name in FORGETS else remembered > 0.9

    def test_says_what_it_keeps(self, name, tmp_path, digits):
        method = make(name, tmp_path)
        sizes = []
        for task in tasks(digits, (0, 1), (2, 3), (4, 5)):
            method.learn(task)
            method.predict(task.x[:1])
            sizes.append(method.nbytes())
        assert all(size > 0 for size in sizes)
        if name not in FORGETS:
            assert sizes == sorted(sizes)

    def test_the_same_seed_gives_the_same_predictions(self, name, tmp_path, digits):
        predictions = []
        for number, seed in enumerate((5, 5)):
            (tmp_path / str(number)).mkdir()
            method = make(name, tmp_path / str(number), seed)
            for task in tasks(digits, (0, 1), (2, 3), limit=80):
                method.learn(task)
            predictions.append(method.predict(digits[0][:300]))
        assert np.array_equal(predictions[0], predictions[1])

    def test_survives_one_sample_and_one_class(self, name, tmp_path, digits):
        method = make(name, tmp_path)
        (one,) = tasks(digits, (7,), limit=1)
        (single,) = tasks(digits, (4,), limit=70)
        (two,) = tasks(digits, (0, 1), limit=60)
        for task in (one, single, two):
            method.learn(task)
            predicted = method.predict(digits[0][:5])
            assert predicted.dtype == np.int64
            assert set(predicted.tolist()) <= set(range(10))

    def test_predicting_first_is_a_clear_error(self, name, tmp_path, digits):
        with pytest.raises(NotTrained, match="no task yet"):
            make(name, tmp_path).predict(digits[0][:1])


def test_an_unknown_method_is_named(tmp_path):
    with pytest.raises(BadSettings, match="no method 'magic'; choose one of: logcl"):
        make("magic", tmp_path)


def test_replayed_samples_are_matched_with_their_originals(tmp_path, digits):
    """Index codes permute samples within a level; the method still knows which is which."""
    settings = override(
        preset("paper-cpu", (1, 8, 8)),
        {
            "unit": 32,
            "generator.network": "mlp",
            "generator.bits": 200,
            "generator.width": 256,
            "generator.assignment": "greedy",
            "generator.min_steps": 250,
            "generator.epochs": 1,
            "generator.warm_up_epochs": 3,
        },
    )
    method = methods.create("logcl", Problem(settings, NAMES, tmp_path))
    learned = tasks(digits, (0, 1), (2, 3), (4, 5), limit=50)
    for task in learned:
        method.learn(task)
    originals = np.concatenate([task.x for task in learned]).astype(float)
    replayed = method.replayed()
    assert sorted(replayed.arrival.tolist()) == list(range(150))

    def error(order):
        return np.square((replayed.x - originals[order]) / 255).mean()

    shuffled = np.random.default_rng(0).permutation(150)
    assert error(replayed.arrival) < error(np.arange(150)) / 4
    assert error(replayed.arrival) < error(shuffled) / 4
    assert replayed.generations.min() == -1
