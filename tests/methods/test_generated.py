"""Methods that replay what a VAE generates: their shared parts, and what each of them promises."""

import numpy as np
import pytest
import torch

from logcl import methods
from logcl.core.settings import Recipe
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.methods import Problem
from logcl.methods.hypercl import HyperCL, HyperOptions
from logcl.methods.parts.generated import as_images, mlp, negative_elbo, weighted
from logcl.nn.training import seeded
from logcl.streams import Task

NAMES = tuple(map(str, range(10)))
SHAPE = (1, 8, 8)
QUICK = Recipe(epochs=1, min_steps=60, learning_rate=3e-3)


@pytest.fixture
def problem(tmp_path) -> Problem:
    settings = override(preset("fast", SHAPE), {"classifier.min_steps": 20, "classifier.epochs": 1})
    return Problem(settings, NAMES, tmp_path)


def of(digits, *classes: int) -> Task:
    x, y = digits
    rows = np.flatnonzero(np.isin(y, classes))[:80]
    return Task(x[rows], y[rows])


@pytest.mark.parametrize("name", ["dgr-vae", "hypercl"])
def test_resumes_from_its_state(name, problem, digits):
    method = methods.create(name, problem, {"generator": QUICK})
    method.learn(of(digits, 0, 1))
    again = methods.create(name, problem, {"generator": QUICK})
    again.restore({key: value.clone() for key, value in method.state().items()})
    assert again.nbytes() == method.nbytes()
    assert np.array_equal(again.predict(digits[0][:200]), method.predict(digits[0][:200]))
    for one in (method, again):
        one.learn(of(digits, 2, 3))
    for key, value in method.state().items():
        assert torch.equal(value, again.state()[key]), key


def test_every_task_has_the_same_weight():
    losses = torch.tensor([1.0, 3.0, 10.0])
    assert weighted(losses, 2, 4) == pytest.approx(2 / 4 + 10 * 3 / 4)


def test_an_encoder_of_zeros_has_no_divergence():
    with seeded(torch.Generator().manual_seed(0)):
        encoder, decoder = mlp([64, 16, 8]), mlp([4, 16, 64])
    for weight in [*encoder.parameters(), *decoder.parameters()]:
        weight.data.zero_()
    images = torch.full((3, *SHAPE), 0.5)
    with seeded(torch.Generator().manual_seed(0)):
        losses = negative_elbo(encoder, decoder, images)
    assert losses.tolist() == pytest.approx([np.log(2)] * 3)


def test_images_are_bytes():
    images = as_images(torch.tensor([[-100.0, 0.0, 100.0, 0.0]]), (1, 2, 2))
    assert images.dtype == torch.uint8
    assert images.flatten().tolist() == [0, 128, 255, 128]


class TestHypernetwork:
    def moved(self, problem: Problem, digits, beta: float) -> float:
        """How far the weights of the first task's decoder move while the second task is learned."""
        method = HyperCL(problem, HyperOptions(generator=QUICK, beta=beta))
        method.train_generator(torch.from_numpy(of(digits, 0, 1).x))
        before = method.generator(method.embeddings).detach()
        method.train_generator(torch.from_numpy(of(digits, 2, 3).x))
        return float((method.generator(method.embeddings[:1]).detach() - before).norm())

    def test_the_regulariser_holds_old_decoders(self, problem, digits):
        assert self.moved(problem, digits, 0.05) < self.moved(problem, digits, 0) / 3

    @pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
    def test_is_about_as_large_as_one_decoder(self, shape, tmp_path):
        problem = Problem(preset("fast", shape), NAMES, tmp_path)
        network = HyperCL(problem, HyperOptions()).generator
        weights = sum(weight.numel() for weight in network.parameters())
        assert weights < 1.5 * len(network.scale)

    def test_decodes_each_task_with_its_own_weights(self, problem):
        network = HyperCL(problem, HyperOptions()).generator
        draws = torch.Generator().manual_seed(0)
        embeddings = torch.randn(3, 96, generator=draws)
        latents = torch.randn(3, 5, network.latent, generator=draws)
        together = network.decode(network(embeddings), latents)
        alone = torch.cat([network.decode(network(embeddings[[t]]), latents[[t]]) for t in range(3)])
        assert together.shape == (3, 5, 64)
        assert torch.allclose(together, alone, atol=1e-5)
