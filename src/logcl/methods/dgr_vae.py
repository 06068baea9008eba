"""Deep generative replay (Shin et al. 2017) from a VAE (van de Ven & Tolias 2018, van de Ven et al. 2022)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from logcl.core.settings import Frozen, Recipe
from logcl.methods.parts.generated import learn_beside, weighted
from logcl.methods.parts.protocol import Method, Part, Problem, State
from logcl.methods.parts.solver import Solver, tensors
from logcl.methods.parts.vae import Decoder, Encoder, as_images, hidden_sizes, latent_size, negative_elbo
from logcl.nn import blobs
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import fit, seeded
from logcl.streams import Task

_GENERATOR = 0xD6  # sets the generator's randomness apart from the classifier's


class DGROptions(Frozen):
    """The generator's hyperparameters; the classifier has those that all methods share."""

    hidden: tuple[int, ...] = (400, 400)
    """Units of the hidden layers of encoder and decoder: van de Ven et al. 2022 on Split MNIST. Never more
    than twice the values of an image."""
    latent: int = Field(100, ge=1, le=65_536)
    """Entries of z, from the same place. Never more than a quarter of the values of an image."""
    generator: Recipe = Recipe(epochs=20, min_steps=800, learning_rate=3e-3)
    """How the VAE is trained on each task: Adam and batches of 128 as there, on Split MNIST about the 2000
    steps; small tasks have fewer, at a rate that goes up to three times theirs."""


class VAE(nn.Module):
    """Both halves."""

    def __init__(self, problem: Problem, options: DGROptions) -> None:
        super().__init__()
        shape = problem.settings.image_shape
        hidden, self.latent = hidden_sizes(options.hidden, shape), latent_size(options.latent, shape)
        self.image_shape = shape
        self.encoder = Encoder(shape, hidden, self.latent)
        self.decoder = Decoder(self.latent, hidden[::-1], shape)

    def losses(self, pixels: Tensor) -> Tensor:
        """The negative ELBO of each uint8 image, in nats a value."""
        return negative_elbo(self.encoder, self.decoder, to_unit(pixels.to(choose_device())))

    @torch.no_grad()
    def draw(self, count: int) -> Tensor:
        """uint8 images (count, C, H, W) for latents out of the prior."""
        return as_images(
            self.decoder(torch.randn(count, self.latent, device=choose_device())), self.image_shape
        )


class Generator:
    """The VAE that goes on from task to task, and how many there were."""

    def __init__(self, problem: Problem, options: DGROptions) -> None:
        self.problem, self.options = problem, options
        self.tasks = 0
        self._vae: VAE | None = None

    @property
    def vae(self) -> VAE:
        """With random weights before the first task."""
        if self._vae is None:
            with seeded(self.problem.work(_GENERATOR).generator):
                self._vae = VAE(self.problem, self.options).to(choose_device())
        return self._vae

    def learn(self, images: Tensor) -> None:
        """Go on with new images, beside those that the VAE drew before this task."""
        self.tasks += 1
        vae, number = self.vae, self.tasks
        before = copy.deepcopy(vae)

        def loss(rows: Tensor) -> Tensor:
            if number == 1:
                return vae.losses(images[rows]).mean()
            old = before.draw(self.options.generator.batch_size)
            return weighted(vae.losses(torch.cat([images[rows], old])), len(rows), number)

        work = self.problem.work(_GENERATOR, number, name="generator")
        with self.problem.clock("train"):
            fit(vae, loss, len(images), self.options.generator, work)

    def state(self) -> State:
        """The number of tasks and, after the first, both halves: the encoder is where the next one starts."""
        known = {"generator.tasks": torch.tensor(self.tasks)}
        return known | (blobs.weights(self.vae, "vae") if self.tasks else {})

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.tasks = int(state["generator.tasks"])
        if self.tasks:
            mine = {k.removeprefix("vae."): v for k, v in state.items() if k.startswith("vae.")}
            self.vae.load_state_dict(mine)


class DGRVAE(Method):
    """A scholar, generator and solver; each task makes the next one out of new samples and the last one."""

    Options = DGROptions
    options: DGROptions

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        self.generator = Generator(problem, self.options)

    def learn(self, task: Task) -> None:
        """First the solver, while the generator is still that of the tasks before; then the generator."""
        learn_beside(self.solver, task, self.generator.tasks + 1, self.generator.vae.draw)
        self.generator.learn(tensors(task)[0])

    def parts(self) -> tuple[Part, ...]:
        """Solver and generator."""
        return self.solver, self.generator
