"""Muon: filters of convolutions get orthogonal updates, everything else is for AdamW."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from logcl.core.settings import Recipe
from logcl.nn.muon import Muon, orthogonal
from logcl.nn.training import Work, fit, generator_for, seeded


@pytest.mark.parametrize(("rows", "columns"), [(6, 20), (20, 6), (8, 8)])
def test_directions_stay_and_singular_values_become_alike(rows, columns):
    generator = generator_for(0)
    draw = torch.randn(rows, columns, generator=generator)
    left, _, right = torch.linalg.svd(draw, full_matrices=False)
    values = torch.linspace(1, 6, min(rows, columns))
    found = left.T @ orthogonal(left * values @ right) @ right.T
    alike = found.diagonal()
    assert (found - torch.diag(alike)).abs().max() < 1e-4
    assert alike.max() / alike.min() < 2  # it was 6
    assert alike.min() > 0.5
    assert alike.max() < 1.3


def test_a_gradient_of_zero_changes_nothing():
    assert not orthogonal(torch.zeros(3, 5)).any()


def network_of(seed: int = 0) -> nn.Module:
    with seeded(generator_for(seed)):
        return nn.Sequential(
            nn.Conv2d(2, 6, 3, bias=False), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(24, 3)
        )


def step(network: nn.Module, optimiser: torch.optim.Optimizer, factor: float = 1.0) -> None:
    x = torch.randn(8, 2, 4, 4, generator=generator_for(1))
    optimiser.zero_grad(set_to_none=True)
    (factor * network(x).square().mean()).backward()
    optimiser.step()


def test_filters_keep_their_norm_and_move_as_far_whatever_the_size_of_the_gradient():
    after = []
    for factor in (1.0, 1e-3):
        network = network_of()
        step(network, Muon(network.parameters(), 0.6, lr=1e-4, fused=True), factor)
        after.append(network[0].weight.detach())
    assert after[0].norm() == pytest.approx(6**0.5, rel=0.01)
    assert torch.allclose(after[0], after[1], atol=1e-5)


def test_the_rest_is_updated_by_adamw():
    mine, other = network_of(), network_of()
    step(mine, Muon(mine.parameters(), 0.6, lr=1e-3, weight_decay=0.1, fused=True))
    step(other, torch.optim.AdamW(other.parameters(), lr=1e-3, weight_decay=0.1, fused=True))
    for layer in (1, 3):
        assert torch.equal(mine[layer].weight, other[layer].weight)
    assert not torch.equal(mine[0].weight, other[0].weight)


def test_gradients_are_still_there_after_a_step():
    """`fit` calls `after_step` then, and methods such as SI read them."""
    network = network_of()
    step(network, Muon(network.parameters(), 0.6, lr=1e-3, fused=True))
    assert all(weight.grad is not None for weight in network.parameters())


def test_frozen_filters_stay():
    network = network_of()
    network[0].requires_grad_(False)
    before = network[0].weight.clone()
    step(network, Muon(network.parameters(), 0.6, lr=1e-3, fused=True))
    assert torch.equal(network[0].weight, before)


def test_it_learns_in_fewer_steps_than_adam():
    """To tell diagonal strokes of either direction apart, wherever they are."""
    generator = generator_for(2)
    x = 0.8 * torch.randn(256, 1, 12, 12, generator=generator)
    y = torch.arange(256) % 2
    for row, place in enumerate(torch.randint(7, (256, 2), generator=generator).tolist()):
        stroke = torch.eye(5) if y[row] else torch.eye(5).flip(1)
        x[row, 0, place[0] : place[0] + 5, place[1] : place[1] + 5] += stroke
    losses = {}
    for optimiser, rate in (("adam", 5e-3), ("muon", 5e-3)):
        with seeded(generator_for(0)):
            network = nn.Sequential(
                nn.Conv2d(1, 8, 5, bias=False), nn.BatchNorm2d(8), nn.GELU(),
                nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 2),
            )  # fmt: skip

        def loss(rows: torch.Tensor, network: nn.Module = network) -> torch.Tensor:
            return nn.functional.cross_entropy(network(x[rows]), y[rows])

        recipe = Recipe(epochs=6, batch_size=32, optimiser=optimiser, momentum=0.6, learning_rate=rate)
        losses[optimiser] = fit(network, loss, 256, recipe, Work(generator_for(0)))
    assert losses["muon"] < losses["adam"]
