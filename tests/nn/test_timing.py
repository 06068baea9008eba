"""The pace of a training: measured without a trace, fitted to the time there is, told in a sentence."""

import time

import torch
from torch import nn

from logcl.core.settings import Recipe
from logcl.nn.timing import Pace, seconds_per_image
from logcl.nn.training import generator_for, new_optimiser, seeded


def test_the_measurement_leaves_no_trace():
    with seeded(generator_for(0)):
        network = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 3)
        )
        x = torch.randn(40, 1, 8, 8)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    random = torch.get_rng_state()
    update = new_optimiser(network, Recipe(optimiser="muon")).step
    assert seconds_per_image(network, lambda rows: network(x[rows]).square().mean(), 40, 16, update, 16) > 0
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(weight.grad is None for weight in network.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_it_measures_whole_batches_unless_that_takes_too_long():
    with seeded(generator_for(0)):
        weight = nn.Linear(1, 1)

    def loss(each):
        def work(rows):
            asked.append(len(rows))
            time.sleep(each * len(rows))
            return weight(torch.ones(1)).sum()

        return work

    asked: list[int] = []
    assert 0.0005 <= seconds_per_image(weight, loss(0.0005), 1000, 64) < 0.002
    assert asked == [8, 64, 64]
    asked.clear()
    assert 0.01 <= seconds_per_image(weight, loss(0.01), 1000, 512) < 0.02
    assert asked == [8, 8]
    asked.clear()
    found = seconds_per_image(weight, loss(0), 1000, 64, lambda: time.sleep(0.064), 32)
    assert 0.002 <= found < 0.004  # of each image, a 32nd of an update
    asked.clear()
    seconds_per_image(weight, loss(0), 3, 64)
    assert asked == [3, 3]


def test_steps_that_there_is_time_for():
    assert Pace(0.01).most(1000, 8) is None
    assert (
        Pace(0.01, 100).most(1000, 8) == 72
    )  # nine of ten epochs: some time is left for what was not measured
    assert Pace(0.01, 5).most(1000, 8) == 3
    assert Pace(0.01, 1e-9).most(1000, 8) == 1
    assert Pace(1e-300, 1e300).most(1000, 8) is None


def test_it_is_told_in_a_sentence():
    assert Pace(1 / 110).sentence(1817, 14, 0, 8 * 14, 8 * 14) == (
        "takes about 2.2 min: 8 epochs of 1,817 images, 110 images per second"
    )
    assert (
        Pace(1 / 110)
        .sentence(1817, 14, 3 * 14, 5 * 14, 8 * 14)
        .startswith("takes about 33 s: 2 of 8 epochs of")
    )
    assert "0.5 of 8 epochs" in Pace(1 / 110).sentence(1817, 14, 0, 7, 8 * 14)
