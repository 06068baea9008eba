"""The training loop: it learns, is reproducible, leaves global randomness alone and reports divergence."""

import itertools
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from logcl.core.progress import Silent
from logcl.core.settings import Recipe
from logcl.core.text import human_seconds
from logcl.nn.timing import Pace
from logcl.nn.training import (
    Diverged,
    Work,
    _Schedule,
    fit,
    generator_for,
    seeded,
    steps_per_epoch,
    total_steps,
)


class Recorder(Silent):
    """A progress that records its calls."""

    def __init__(self):
        self.totals, self.steps = [], 0

    @contextmanager
    def track(self, description, total):
        self.totals.append(total)

        def advance(steps=1, note=""):
            self.steps += steps

        yield advance


def line_fit(recipe: Recipe, seed: int = 0, progress=None) -> tuple[nn.Module, float, list[torch.Tensor]]:
    x = torch.linspace(-1, 1, 50)[:, None]
    generator = generator_for(seed)
    with seeded(generator):
        network = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    rows_seen = []

    def loss(rows):
        rows_seen.append(rows)
        return nn.functional.mse_loss(network(x[rows]), 3 * x[rows] + 1)

    final = fit(network, loss, 50, recipe, Work(generator, progress or Silent()))
    return network, final, rows_seen


@pytest.mark.parametrize("schedule", ["constant", "one-cycle", "exponential"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd", "muon"])
def test_it_learns(optimiser, schedule):
    recipe = Recipe(epochs=60, batch_size=10, learning_rate=0.02, optimiser=optimiser, schedule=schedule)
    network, final, _ = line_fit(recipe)
    assert final < 0.5
    assert not network.training
    assert abs(float(network(torch.tensor([[0.5]])).detach()) - 2.5) < 0.3


def test_weights_depend_on_the_seed_only():
    recipe = Recipe(epochs=3, batch_size=10)
    first, second, other = (line_fit(recipe, seed)[0].state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_each_epoch_sees_every_row_once():
    recipe = Recipe(epochs=4, batch_size=12)
    _, _, seen = line_fit(recipe)
    per_epoch = steps_per_epoch(recipe, 50)
    assert len(seen) == 4 * per_epoch
    for start in range(0, len(seen), per_epoch):
        assert sorted(torch.cat(seen[start : start + per_epoch]).tolist()) == list(range(50))
    sizes = {len(rows) for rows in seen}
    assert max(sizes) - min(sizes) <= 1


@given(
    count=st.integers(1, 3000), size=st.integers(1, 400), epochs=st.integers(1, 5), least=st.integers(0, 99)
)
def test_steps(count, size, epochs, least):
    recipe = Recipe(epochs=epochs, batch_size=size, min_steps=least)
    assert total_steps(recipe, count) >= max(epochs, least)
    assert count / steps_per_epoch(recipe, count) <= max(2 * size, count if count < size else 0)


def test_progress_counts_every_step():
    recorder = Recorder()
    recipe = Recipe(epochs=2, batch_size=10, min_steps=23)
    line_fit(recipe, progress=recorder)
    assert recorder.totals == [23]
    assert recorder.steps == 23


def test_a_batch_in_parts_gives_the_same_weights_and_every_part_moves_the_bar():
    """A batch of large images may take half a minute, all of which the bar would stand still."""
    recipe = Recipe(epochs=2, batch_size=10, learning_rate=0.01)
    seen = []

    class Places(Silent):
        @contextmanager
        def track(self, description, total):
            yield lambda steps=1, note="": seen.append(steps) if steps else None

    def fitted(at_once):
        with seeded(generator_for(0)):
            network, x = nn.Linear(3, 1), torch.randn(50, 3)
        work = Work(generator_for(0), Places())
        fit(network, lambda rows: (network(x[rows]) - 1).square().mean(), 50, recipe, work, at_once=at_once)
        return network.weight

    whole = fitted(None)
    assert seen == [1] * 10
    seen.clear()
    torch.testing.assert_close(fitted(3), whole, rtol=1e-4, atol=1e-6)
    assert seen == [1 / 4] * 40


def test_a_loss_that_explodes_is_reported():
    with seeded(generator_for(0)):
        network = nn.Linear(1, 1)

    def loss(rows):
        return (network(torch.ones(len(rows), 1)) * torch.inf).sum()

    with pytest.raises(Diverged, match="lower learning_rate"):
        fit(network, loss, 4, Recipe(epochs=1), Work(generator_for(0)))


def test_generators_of_different_keys_differ():
    draws = {tuple(torch.rand(4, generator=generator_for(*key)).tolist()) for key in np.ndindex(3, 3, 3)}
    assert len(draws) == 27


def scripted_fit(recipe: Recipe, losses, count: int = 40) -> tuple[int, Recorder, float]:
    """A fit with the given losses → steps taken, recorded progress, result."""
    weight = nn.Parameter(torch.zeros(()))
    network = nn.Module()
    network.weight = weight
    made = 0
    recorder = Recorder()

    def loss(rows):
        nonlocal made
        made += 1
        return weight * 0 + next(losses)

    final = fit(network, loss, count, recipe, Work(generator_for(0), recorder))
    return made, recorder, final


PATIENT = Recipe(epochs=100, batch_size=10, patience=3)  # 4 steps per epoch, 400 in total, intervals of 20


@pytest.mark.parametrize("schedule", ["constant", "one-cycle", "exponential"])
def test_early_stopping_completes_the_progress(schedule):
    recipe = PATIENT.model_copy(update={"schedule": schedule})
    made, recorder, final = scripted_fit(recipe, itertools.repeat(2.0))
    # The first interval is the best, the next three are stale, then a quarter more to cool down.
    assert made == 80 + 20
    assert recorder.totals == [400]
    assert recorder.steps == 400
    assert final == 2.0


def test_a_loss_that_falls_by_less_than_one_per_cent_is_stale():
    slowly = (2.0 * 0.9999**step for step in itertools.count())  # 0.2 % per interval
    assert scripted_fit(PATIENT, slowly)[0] == 100


def test_a_falling_loss_is_not_stopped_early():
    falling = (2.0 * 0.99**step for step in itertools.count())
    made, recorder, final = scripted_fit(PATIENT, falling)
    assert made == recorder.steps == 400
    assert final < 0.05


def test_an_improvement_resets_the_patience():
    """Two intervals without improvement, then one with it, repeated: never three stale ones in a row."""
    stairs = (2.0 * 0.9 ** (step // 60) for step in itertools.count())
    assert scripted_fit(PATIENT, stairs)[0] == 400


def test_without_patience_there_is_no_early_stopping():
    made, recorder, _ = scripted_fit(PATIENT.model_copy(update={"patience": 0}), itertools.repeat(2.0))
    assert made == recorder.steps == 400


@given(
    steps=st.integers(1, 400), per_epoch=st.integers(1, 50), patience=st.integers(1, 5), data=st.data(),
    schedule=st.sampled_from(["constant", "one-cycle", "exponential"]),
)  # fmt: skip
def test_training_never_exceeds_the_planned_steps(steps, per_epoch, patience, data, schedule):
    plan = _Schedule(Recipe(patience=patience, schedule=schedule), steps, per_epoch)
    losses = data.draw(st.lists(st.floats(0, 10), min_size=1, max_size=8))
    step = 0
    while step != plan.end:
        step += 1
        assert 0 < plan.factor(step) <= 1
        if step % plan.interval == 0 or step == plan.end:
            plan.observe(step, losses[step // plan.interval % len(losses)])
        assert step <= plan.end <= steps


def test_the_last_learning_rates_are_near_zero():
    whole = _Schedule(Recipe(schedule="one-cycle"), 400, 10)
    rates = [whole.factor(step) for step in range(1, 401)]
    assert max(rates) == pytest.approx(1, abs=0.01)
    assert rates[0] < 0.05
    assert 0 < rates[-1] < 1e-3
    for schedule in ("constant", "one-cycle", "exponential"):
        cut = _Schedule(Recipe(schedule=schedule, patience=2), 400, 10)
        for step in (100, 110, 120):
            before = cut.factor(120)
            cut.observe(step, 1.0)
        rates = [cut.factor(step) for step in range(121, cut.end + 1)]
        assert len(rates) == 30
        assert all(late < early for early, late in itertools.pairwise([before, *rates]))
        assert rates[-1] < 0.05 * before


class Stop(Exception):
    pass


def resumable(recipe: Recipe, work: Work, channels_last: bool = False) -> nn.Module:
    """A fit with everything that has a state: batch statistics, dropout, momentum, random losses."""
    with seeded(generator_for(3)):
        network = nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Dropout(0.2), nn.Flatten(), nn.Linear(48, 1)
        )
        x, y = torch.randn(50, 2, 4, 4), torch.randn(50, 1)
    if channels_last:
        network.to(memory_format=torch.channels_last)
    fit(network, lambda rows: (network(x[rows]) - y[rows]).square().mean() + torch.rand(()), 50, recipe, work)
    return network


RECIPES = {
    "adam": Recipe(epochs=6, batch_size=9, weight_decay=0.01),
    "sgd": Recipe(epochs=6, batch_size=9, optimiser="sgd", momentum=0.9, schedule="constant"),
    "plain sgd": Recipe(epochs=6, batch_size=9, optimiser="sgd", momentum=0.0, schedule="exponential"),
    "muon": Recipe(epochs=6, batch_size=9, optimiser="muon", weight_decay=0.01),
    "cooling": Recipe(epochs=40, batch_size=50, patience=1, learning_rate=1e-6, schedule="constant"),
    "more steps than epochs": Recipe(epochs=1, batch_size=9, min_steps=31),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_fit_continues_from_any_epoch_as_if_it_had_never_stopped(recipe, channels_last):
    kept = []
    whole = resumable(recipe, Work(generator_for(0)), channels_last).state_dict()

    def keep(epoch, epochs, state):
        kept.append((epoch, epochs, state))

    watched = resumable(recipe, Work(generator_for(0), keep=keep), channels_last).state_dict()
    assert all(torch.equal(whole[name], watched[name]) for name in whole)
    assert [epoch for epoch, _, _ in kept] == list(range(1, len(kept) + 1))
    assert len(kept) >= 4
    for epoch, epochs, state in kept:
        assert epoch < epochs
        recorder = Recorder()
        after = resumable(recipe, Work(generator_for(0), recorder, resume=state), channels_last).state_dict()
        assert all(torch.equal(whole[name], after[name]) for name in whole), epoch
        assert recorder.totals == [recorder.steps]


def test_what_keep_raises_stops_the_fit():
    """A time limit can end a training after an epoch in this way."""

    def keep(epoch, epochs, state):
        if epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        resumable(RECIPES["adam"], Work(generator_for(0), keep=keep))


def damage(state: dict, name: str, value) -> dict:
    return {**state, name: value} if value is not None else {k: v for k, v in state.items() if k != name}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("network.0.weight", None), ("network.0.weight", torch.zeros(3)),
        ("network.9.weight", torch.zeros(3)),
        ("network.0.weight", torch.zeros(3, 2, 3, 3, dtype=torch.float64)),
        ("optimiser.0.exp_avg", torch.zeros(4)), ("optimiser.77.exp_avg", torch.zeros(4)),
        ("optimiser.x.exp_avg", torch.zeros(4)), ("random.own", None), ("random.cpu", torch.zeros(3)),
        ("random.own", torch.zeros(5056, dtype=torch.uint8)), ("numbers", None), ("numbers", torch.zeros(2)),
        ("numbers", torch.tensor([7, 0, 0, 0, 36, 36, 0, 0, torch.nan, torch.nan], dtype=torch.float64)),
        ("numbers", torch.tensor([6, 0, 0, 0, 99, 99, 0, 0, torch.nan, torch.nan], dtype=torch.float64)),
        ("numbers", torch.tensor([6, 0, 0, 0, 36, 30, 0, 0, torch.nan, torch.nan], dtype=torch.float64)),
        ("numbers", torch.tensor([6, 9, 0, 0, 36, 36, 0, 0, torch.nan, torch.nan], dtype=torch.float64)),
        ("numbers", torch.tensor([6, 0, 0, 0, 36, 0, 0, torch.nan, torch.nan], dtype=torch.float64)),
        ("numbers", torch.full((10,), torch.nan, dtype=torch.float64)),
    ],
)  # fmt: skip
def test_a_state_that_does_not_fit_is_ignored(name, value):
    kept = []
    recipe = RECIPES["adam"]
    whole = resumable(recipe, Work(generator_for(0), keep=lambda *given: kept.append(given[2]))).state_dict()
    again = resumable(recipe, Work(generator_for(0), resume=damage(kept[0], name, value))).state_dict()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


class Rates(Recorder):
    """What was said, and the learning rates that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.said, self.rates = [], {}

    def say(self, text):
        self.said.append(text)

    def log(self, moment):
        self.rates[moment.step] = moment.values["learning_rate"]


@pytest.mark.parametrize(("seconds", "steps"), [(None, 36), (1e9, 36), (26.0, 24), (3.3, 3), (-5.0, 1)])
def test_a_fit_ends_in_the_time_there_is(seconds, steps):
    """36 steps of a second; whole epochs of 6 if there is time for one. The learning rate falls to zero."""
    recorder = Rates()
    resumable(RECIPES["adam"], Work(generator_for(0), recorder, pace=Pace(6 / 50, seconds)))
    assert recorder.totals == [recorder.steps] == [steps]
    assert recorder.rates[steps] < (0.1 if steps > 3 else 1) * RECIPES["adam"].learning_rate
    (said,) = recorder.said
    assert f"about {human_seconds(steps)}" in said
    assert ("of 6 epochs" in said) == (steps < 36)


def test_a_fit_that_continues_ends_in_the_time_there_is():
    recipe, kept = RECIPES["adam"], []
    resumable(recipe, Work(generator_for(0), keep=lambda *given: kept.append(given[2])))
    recorder = Rates()
    work = Work(generator_for(0), recorder, resume=kept[2], pace=Pace(6 / 50, 13.0))
    resumable(recipe, work)
    assert recorder.totals == [recorder.steps] == [12]  # of 18 that are left
    assert list(recorder.rates) == [24, 30]
    assert recorder.rates[30] < 0.1 * recipe.learning_rate
    # Interrupted once more, without a limit it ends where it would have ended.
    again = []
    resumable(recipe, replace(work, keep=lambda *given: again.append(given[2])))
    recorder = Rates()
    resumable(recipe, Work(generator_for(0), recorder, resume=again[0]))
    assert list(recorder.rates) == [30]
