"""One contract for every method."""

import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from logcl import methods
from logcl.core.errors import BadSettings, NotTrained
from logcl.core.progress import Silent
from logcl.experiments import checkpoint
from logcl.experiments import run as experiment
from logcl.experiments.checkpoint import Checkpoint
from logcl.experiments.result import Result
from logcl.memory.presets import preset
from logcl.memory.settings import applicable, override
from logcl.methods import METHODS, Method, Problem
from logcl.methods.parts.exemplars import Exemplars, RawSamples
from logcl.methods.parts.protocol import BOOKKEEPING
from logcl.streams import Stream, Task

NAMES = tuple(map(str, range(10)))

FORGETS = {"finetune", "ewc", "ewc-online", "si"}
"""Methods without samples confuse classes that never arrive together: no accuracy is required."""

QUICK = {
    "unit": 64,
    "codec.min_steps": 150,
    "codec.epochs": 3,
    "codec.warm_up_epochs": 3,
    "labels.training.min_steps": 150,
    "classifier.network": "convnet",
    "classifier.width": 8,
    "classifier.min_steps": 60,
    "classifier.epochs": 3,
}
_FEW_STEPS = {"training.epochs": 5, "training.min_steps": 200, "training.learning_rate": 3e-3}
OPTIONS: dict[str, dict[str, object]] = {
    "vcl": {**_FEW_STEPS, "refining.min_steps": 200, "refining.learning_rate": 3e-3},
    "curl": _FEW_STEPS,
    "dgr-vae": {"generator.min_steps": 300},
    "hypercl": {"generator.min_steps": 300},
}
"""Options that make a method quick enough for a test."""
PRESETS = {"binplay": "paper-cpu"}
"""Presets whose generator a method uses unchanged, so that it can be made quick."""


def tasks(digits, *groups: tuple[int, ...], limit: int = 120) -> list[Task]:
    x, y = digits
    return [
        Task(x[rows], y[rows]) for rows in (np.flatnonzero(np.isin(y, group))[:limit] for group in groups)
    ]


def problem(folder: Path, name: str, changes: dict[str, object] | None = None) -> Problem:
    folder.mkdir(parents=True, exist_ok=True)
    settings = preset(PRESETS.get(name, "fast"), (1, 8, 8))
    if settings.preset == "fast":  # choosing a codec takes longer than a method
        settings = override(settings, {"codec.name": "cosine"})
    settings = override(settings, applicable(settings, {**QUICK, **(changes or {})}))
    return Problem(settings, NAMES, folder, budget="10/class")


def make(name: str, folder: Path, **changes: object) -> Method:
    return methods.create(name, problem(folder, name, changes), OPTIONS.get(name))


@dataclass(frozen=True)
class Learned:
    """A method that has learned two tasks, and a checkpoint between them."""

    name: str
    method: Method
    folder: Path
    first: Task
    second: Task
    after_first: np.ndarray
    sizes: tuple[int, int]


@pytest.fixture(
    scope="class", params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in METHODS]
)
def learned(request, tmp_path_factory, digits) -> Learned:
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    method = make(name, folder / "run")
    first, second = tasks(digits, (0, 1), (2, 3))
    method.learn(first)
    after_first = method.predict(digits[0][:200])
    size = method.nbytes()
    checkpoint.write(folder, Checkpoint(fingerprint=""), method.state())
    method.learn(second)
    return Learned(name, method, folder, first, second, after_first, (size, method.nbytes()))


class TestEveryMethod:
    def test_learns_two_tasks(self, learned):
        method, first, second = learned.method, learned.first, learned.second
        assert (method.predict(second.x) == second.y).mean() > 0.8
        if learned.name not in FORGETS:
            both = np.concatenate([first.x, second.x]), np.concatenate([first.y, second.y])
            assert (method.predict(first.x) == first.y).mean() > 0.5
            assert (method.predict(both[0]) == both[1]).mean() > 0.7

    def test_predictions_are_classes_seen_so_far(self, learned):
        assert set(learned.after_first.tolist()) <= {0, 1}
        assert set(learned.method.predict(learned.second.x).tolist()) <= {0, 1, 2, 3}

    def test_counts_everything_it_needs(self, learned):
        """Its size is that of its state, and its state is enough to resume: see below."""
        state = learned.method.state()
        counted = sum(value.nbytes for name, value in state.items() if BOOKKEEPING not in name)
        assert learned.sizes[0] > 0
        if learned.name == "logcl":
            assert learned.sizes[1] <= counted  # the file also holds the global model
        else:
            assert learned.sizes[1] == counted

    def test_says_which_samples_it_keeps(self, learned):
        parts = vars(learned.method).values()
        everything = len(learned.first) + len(learned.second)
        has_budget = any(isinstance(part, Exemplars) for part in parts)
        has_all = any(isinstance(part, RawSamples) for part in parts) or (
            (replayed := learned.method.replayed()) is not None and len(replayed.arrival) == everything
        )
        assert learned.method.keeps == ("budget" if has_budget else "all" if has_all else "none")

    def test_resumes_from_a_checkpoint(self, learned, digits):
        again = make(learned.name, learned.folder / "again")
        again.restore(checkpoint.read(learned.folder)[1])
        assert np.array_equal(again.predict(digits[0][:200]), learned.after_first)
        again.learn(learned.second)
        assert np.array_equal(again.predict(digits[0][:300]), learned.method.predict(digits[0][:300]))
        assert again.nbytes() == learned.sizes[1]

    def test_the_same_seed_gives_the_same_predictions(self, learned, digits):
        twin = make(learned.name, learned.folder / "twin")
        twin.learn(learned.first)
        assert np.array_equal(twin.predict(digits[0][:200]), learned.after_first)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in METHODS]
)
class TestFirstTasks:
    def test_survives_one_sample_and_one_class(self, name, tmp_path, digits):
        method = make(name, tmp_path, **{"classifier.min_steps": 5, "codec.min_steps": 20})
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

    def test_an_unknown_option_is_named(self, name, tmp_path):
        with pytest.raises(BadSettings, match=f"there is no option {name}.magic; the options of {name} are"):
            methods.create(name, problem(tmp_path, name), {"magic": 1})


class Interrupts(Silent):
    """Ctrl-C when `after` fits have started."""

    def __init__(self, after: int | None = None) -> None:
        self.begun, self.after = 0, after

    @contextmanager
    def track(self, description: str, total: int):
        self.begun += 1
        if self.begun == self.after:
            raise KeyboardInterrupt
        with super().track(description, total) as advance:
            yield advance


def comparable(result: Result) -> dict:
    """A result without its times."""
    found = result.model_dump(mode="json", exclude={"seconds", "finished"})
    for task in found["tasks"]:
        del task["seconds"]
    return found


WARM = {"classifier.warm_start": True, "classifier.warm_share": 0.4}
RETRAINED = ("logcl", "joint", "cumulative", "generative-replay", "gdumb", "codec-buffer")
"""Methods that train a classifier on everything they remember, which may start from the last one."""


@pytest.mark.parametrize(
    ("name", "changes"),
    [pytest.param(name, {}, marks=pytest.mark.xdist_group(name), id=name) for name in METHODS]
    + [
        pytest.param(name, WARM, marks=pytest.mark.xdist_group(name), id=f"{name}, warm")
        for name in RETRAINED
    ]
    + [
        pytest.param(
            "logcl", {"codec.name": "auto"}, marks=pytest.mark.xdist_group("logcl"), id="logcl, codec chosen"
        )
    ],
)
def test_an_interrupted_run_has_the_result_of_an_uninterrupted_one(name, changes, tmp_path, digits):
    x, y = digits
    members = [np.flatnonzero(np.isin(y, group))[:30] for group in ((0, 1), (2, 3), (4, 5))]
    stream = Stream("digits", NAMES, x, y, tuple(members), x[1000:1100], y[1000:1100])
    few = {
        "codec.min_steps": 5,
        "labels.training.min_steps": 5,
        "classifier.min_steps": 5,
    }
    settings = problem(tmp_path, name, {**few, **changes, "unit": 16}).settings
    options = {key: 5 for key in OPTIONS.get(name, ()) if key.endswith("min_steps")}

    def run(folder: str, progress: Interrupts) -> Result:
        place = tmp_path / folder
        return experiment.run(
            stream, name, settings, place, budget="10/class", options=options, progress=progress
        )

    counted = Interrupts()
    uninterrupted = run("uninterrupted", counted)
    for share in (0.3, 0.75):  # of all fits: in the first task, then in a later one
        with pytest.raises(KeyboardInterrupt):
            run("interrupted", Interrupts(after=max(2, int(share * counted.begun))))
    last = Interrupts()
    assert comparable(run("interrupted", last)) == comparable(uninterrupted)
    assert last.begun < counted.begun  # finished work was not repeated
    left = {path.name for path in (tmp_path / "interrupted").iterdir()}
    assert left == {path.name for path in (tmp_path / "uninterrupted").iterdir()}


class Steps(Silent):
    """The steps of each classifier fit."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    @contextmanager
    def track(self, description: str, total: int):
        if description in ("classifier", "global model"):
            self.counts.append(total)
        with super().track(description, total) as advance:
            yield advance


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in RETRAINED]
)
def test_a_warm_start_takes_fewer_steps_and_no_more_bytes(name, tmp_path, digits):
    learned = tasks(digits, (0, 1), (2, 3), (4, 5))
    both = []
    for kind, changes in (("cold", {}), ("warm", WARM)):
        steps = Steps()
        settings = problem(tmp_path / kind, name, changes).settings
        method = methods.create(
            name, Problem(settings, NAMES, tmp_path / kind, "10/class", progress=steps), OPTIONS.get(name)
        )
        for task in learned:
            method.learn(task)
            assert (method.predict(task.x) == task.y).mean() > 0.7
        both.append((method.nbytes(), steps.counts))
    (cold_size, cold), (warm_size, warm) = both
    assert warm_size == cold_size
    assert warm == [cold[0], *(round(0.4 * count) for count in cold[1:])]


def test_methods_share_nothing_but_their_parts():
    """A test instead of an import contract, whose list every new file would have to join."""
    for path in Path(methods.__file__).parent.rglob("*.py"):
        imported = re.findall(r"(?:from|import) logcl\.methods\b(.*)", path.read_text())
        assert all(name.startswith(".parts.") for name in imported), path


def test_an_unknown_method_is_named(tmp_path):
    with pytest.raises(BadSettings, match="no method 'magic'; choose one of: logcl"):
        make("magic", tmp_path)


def test_replayed_samples_are_matched_with_their_originals(tmp_path, digits):
    """Index codes permute samples within a level; the method keeps track of them."""
    settings = override(
        preset("paper-cpu", (1, 8, 8)),
        {
            "unit": 32,
            "codec.network": "mlp",
            "codec.bits": 200,
            "codec.width": 256,
            "codec.assignment": "greedy",
            "codec.min_steps": 250,
            "codec.epochs": 1,
            "codec.warm_up_epochs": 3,
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
