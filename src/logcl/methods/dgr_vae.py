"""Deep generative replay (Shin et al. 2017) from a VAE (van de Ven & Tolias 2018, van de Ven et al. 2022)."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from logcl.core.settings import Frozen, Recipe
from logcl.methods.parts.generated import learn_with_replay, weighted
from logcl.methods.parts.protocol import Method, Problem, State, without_prefix
from logcl.methods.parts.solver import Solver, tensors
from logcl.methods.parts.vae import Decoder, Encoder, as_images, hidden_sizes, latent_size, negative_elbo
from logcl.nn import blobs
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import fit, seeded
from logcl.streams import Task

_GENERATOR = 0xD6  # keeps the generator's randomness apart from the classifier's


class DGROptions(Frozen):
    """Hyperparameters of the generator; the classifier's are shared by all methods."""

    hidden: tuple[int, ...] = (400, 400)
    """Units of the hidden layers of encoder and decoder: van de Ven et al. 2022 on Split MNIST. At most twice
    the values of an image."""
    latent: int = Field(100, ge=1, le=65_536)
    """Entries of z, from the same paper. At most a quarter of the values of an image."""
    generator: Recipe = Recipe(epochs=20, min_steps=800, learning_rate=3e-3)
    """How the VAE is trained on each task: Adam and batches of 128 as in that paper, and on Split MNIST about
    its 2000 steps; small tasks take fewer, with a learning rate up to three times as high."""


class VAE(nn.Module):
    """Encoder and decoder."""

    def __init__(self, problem: Problem, options: DGROptions) -> None:
        super().__init__()
        shape = problem.settings.image_shape
        hidden, self.latent = hidden_sizes(options.hidden, shape), latent_size(options.latent, shape)
        self.image_shape = shape
        self.encoder = Encoder(shape, hidden, self.latent)
        self.decoder = Decoder(self.latent, hidden[::-1], shape)

    def losses(self, pixels: Tensor) -> Tensor:
        """The negative ELBO of each uint8 image: (n,), in nats per value."""
        return negative_elbo(self.encoder, self.decoder, to_unit(pixels.to(choose_device())))

    @torch.no_grad()
    def draw(self, count: int) -> Tensor:
        """uint8 images (count, C, H, W) decoded from latents of the prior."""
        latents = torch.randn(count, self.latent, device=choose_device())
        return as_images(self.decoder(latents), self.image_shape)


class Generator:
    """A VAE that is trained task by task."""

    def __init__(self, problem: Problem, options: DGROptions) -> None:
        self.problem, self.options = problem, options
        self.tasks = 0

    @cached_property
    def vae(self) -> VAE:
        """The VAE, with random weights before the first task."""
        with seeded(self.problem.work(_GENERATOR).generator):
            return VAE(self.problem, self.options).to(choose_device())

    def learn(self, images: Tensor) -> None:
        """Train on new images and on replay from the VAE as it was before the task."""
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
        """The number of tasks and the VAE, including the encoder, from which the next task starts."""
        known = {"generator.tasks": torch.tensor(self.tasks)}
        return known | (blobs.weights(self.vae, "vae") if self.tasks else {})

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.tasks = int(state["generator.tasks"])
        if self.tasks:
            self.vae.load_state_dict(without_prefix("vae.", state))


class DGRVAE(Method):
    """A generator and a solver, both trained on each task and on replay from the previous generator."""

    name = "dgr-vae"
    summary = "deep generative replay from a VAE"
    Options = DGROptions
    options: DGROptions

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        self.generator = Generator(problem, self.options)

    def learn(self, task: Task) -> None:
        """Train the solver first, while the generator still knows only the earlier tasks."""
        learn_with_replay(self.solver, task, self.generator.tasks + 1, self.generator.vae.draw)
        self.generator.learn(tensors(task)[0])
