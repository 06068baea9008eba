"""Continual learning with hypernetworks (von Oswald et al. 2020): HNET+R, for class-incremental streams.

A hypernetwork h(e_t, c_i; Θ) writes the weights of a VAE's decoder for each task t, chunk by chunk i. Each
task has an embedding e_t of its own; the chunk embeddings c_i and Θ serve all of them.
"""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from logcl.core.settings import Frozen, Recipe
from logcl.methods.parts.generated import Draw, learn_beside
from logcl.methods.parts.protocol import Method, Part, Problem, State
from logcl.methods.parts.solver import Solver, tensors
from logcl.methods.parts.vae import Encoder, as_images, hidden_sizes, latent_size, negative_elbo
from logcl.nn import blobs
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import fit, seeded
from logcl.streams import Task

_GENERATOR = 0x4E  # sets the generator's randomness apart from the classifier's


class HyperOptions(Frozen):
    """The generator's hyperparameters, those of the authors' code for HNET+R on Split MNIST where not said
    otherwise; the classifier has those that all methods share.
    """

    encoder: tuple[int, ...] = (400, 400)
    """Units of the encoder's hidden layers. Never more than twice the values of an image."""
    decoder: tuple[int, ...] = (250, 350)
    """Units of the decoder's hidden layers, with the same limit."""
    latent: int = Field(100, ge=1, le=65_536)
    """Entries of z. Never more than a quarter of the values of an image."""
    embedding: int = Field(96, ge=1, le=65_536)
    """Length of a task's embedding, and of a chunk's."""
    hidden: tuple[int, ...] = (32, 32)
    """Units of the hypernetwork's hidden layers. The authors' 10 with 8 chunks (50,000 weights each) make a
    network as large, whose last layer leaves the chunks less freedom: on digits what old decoders show
    changed half as much again."""
    chunks: int = Field(32, ge=1, le=65_536)
    """Into how many chunks the decoder's weights are cut. With as many as the last hidden layer has units, Θ
    is about as large as one decoder, whatever the size of the images."""
    beta: float = Field(0.05, ge=0)
    """β: weight of the regulariser, beside a loss in nats a value. The authors' value for the decoders of
    HNET+TIR; with theirs for HNET+R, 0.01, what old decoders show on digits changed more than twice as
    much."""
    held: int = Field(32, ge=1)
    """How many earlier tasks are held in a step, drawn anew for each: the authors' number for long streams.
    Up to so many, it is all of them."""
    generator: Recipe = Recipe(epochs=20, min_steps=800, learning_rate=3e-3)
    """How hypernetwork, embedding and encoder are trained on each task: Adam and batches of 128 as there, on
    Split MNIST about the 2000 steps; small tasks have fewer, at a rate that goes up to three times theirs."""


class Hypernetwork(nn.Module):
    """h: embeddings of tasks (t, embedding) to the weights of their decoders, one row each, (t, weights).

    What the last layer gives is divided by the square root of how many inputs a unit of the decoder has, so
    that decoders begin with weights of a usual size, whichever chunk they come from.
    """

    scale: Tensor

    def __init__(self, problem: Problem, options: HyperOptions) -> None:
        super().__init__()
        self.image_shape = problem.settings.image_shape
        self.latent = latent_size(options.latent, self.image_shape)
        hidden = hidden_sizes(options.decoder, self.image_shape)
        self.sides = list(pairwise([self.latent, *hidden, math.prod(self.image_shape)]))
        """Inputs and outputs of each layer of a decoder."""
        self.counts = [(inputs + 1) * outputs for inputs, outputs in self.sides]
        scales = [
            torch.full((n,), 1 / math.sqrt(side[0])) for n, side in zip(self.counts, self.sides, strict=True)
        ]
        self.register_buffer("scale", torch.cat(scales), persistent=False)

        sizes = [2 * options.embedding, *options.hidden, math.ceil(len(self.scale) / options.chunks)]
        layers = [nn.Linear(before, after) for before, after in pairwise(sizes)]
        for layer in layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            nn.init.zeros_(layer.bias)
        self.layers = nn.Sequential(*[part for layer in layers for part in (layer, nn.ELU())][:-1])
        self.chunks = nn.Parameter(torch.randn(options.chunks, options.embedding))

    def forward(self, embeddings: Tensor) -> Tensor:
        """All chunks of all tasks at once."""
        tasks, chunks = len(embeddings), len(self.chunks)
        inputs = [embeddings[:, None].expand(-1, chunks, -1), self.chunks.expand(tasks, -1, -1)]
        written: Tensor = self.layers(torch.cat(inputs, dim=2)).flatten(1)
        return written[:, : len(self.scale)] * self.scale

    def decode(self, weights: Tensor, latents: Tensor) -> Tensor:
        """Logits (t, n, values) of latents (t, n, latent), each task's with its own row of weights."""
        x = latents
        for number, ((inputs, outputs), own) in enumerate(
            zip(self.sides, weights.split(self.counts, dim=1), strict=True)
        ):
            matrix = own[:, :-outputs].reshape(-1, inputs, outputs)
            x = torch.baddbmm(own[:, None, -outputs:], x.relu() if number else x, matrix)
        return x


class Generator:
    """The hypernetwork and the embedding of each task."""

    def __init__(self, problem: Problem, options: HyperOptions) -> None:
        self.problem, self.options = problem, options
        self.embeddings = torch.empty(0, options.embedding)
        """e_1 to e_T, (T, embedding)."""
        self._network: Hypernetwork | None = None

    @property
    def tasks(self) -> int:
        """How many there were."""
        return len(self.embeddings)

    @property
    def network(self) -> Hypernetwork:
        """With random weights before the first task."""
        if self._network is None:
            with seeded(self.problem.work(_GENERATOR).generator):
                self._network = Hypernetwork(self.problem, self.options).to(choose_device())
        return self._network

    @torch.no_grad()
    def drawing(self) -> Draw:
        """Images of all tasks so far, as many of each, out of the decoders as they are now."""
        network, tasks = self.network, self.tasks
        weights = network(self.embeddings.to(choose_device()))

        @torch.no_grad()
        def draw(count: int) -> Tensor:
            latents = torch.randn(tasks, math.ceil(count / tasks), network.latent, device=choose_device())
            images = as_images(network.decode(weights, latents), network.image_shape)
            return images[torch.randperm(len(images))[:count]]

        return draw

    def learn(self, images: Tensor) -> None:
        """A decoder for new images, the decoders of the tasks before held where they are."""
        network, options = self.network, self.options
        device = choose_device()
        old, before = self.embeddings.to(device), copy.deepcopy(network).requires_grad_(False)
        work = self.problem.work(_GENERATOR, self.tasks + 1, name="generator")
        with seeded(work.generator):
            shape = network.image_shape
            encoder = Encoder(shape, hidden_sizes(options.encoder, shape), network.latent).to(device)
            embedding = nn.Parameter(torch.randn(1, options.embedding, device=device))

        def loss(rows: Tensor) -> Tensor:
            held = old[torch.randperm(len(old))[: options.held]]
            weights = network(torch.cat([embedding, held]))
            value = negative_elbo(
                encoder,
                lambda latents: network.decode(weights[:1], latents[None])[0],
                to_unit(images[rows].to(device)),
            ).mean()
            if not len(held):
                return value
            # Equation 2; the mean over the tasks held is the sum over all of them by T - 1.
            moved: Tensor = (weights[1:] - before(held)).square().sum(dim=1).mean()
            return value + options.beta * moved

        trained = nn.ModuleList([encoder, network, nn.ParameterList([embedding])])
        with self.problem.clock("train"):
            fit(trained, loss, len(images), options.generator, work)
        self.embeddings = torch.cat([self.embeddings, embedding.detach().cpu()])

    def state(self) -> State:
        """Θ with the chunk embeddings, and the embeddings of the tasks."""
        known = {"embeddings": self.embeddings}
        return known | (blobs.weights(self.network, "hypernetwork") if self.tasks else {})

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.embeddings = state["embeddings"].clone()
        if self.tasks:
            prefix = "hypernetwork."
            mine = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            self.network.load_state_dict(mine)


class HyperCL(Method):
    """HNET+R: replay out of the decoders that a hypernetwork remembers, into a classifier that goes on.

    The look-ahead of equation 2 (the regulariser at Θ + ΔΘ, where ΔΘ is the step about to be taken) is left
    out, as the authors' code allows: so one backward pass a step is enough.
    """

    Options = HyperOptions
    options: HyperOptions

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.solver: Solver = Solver(problem)
        self.generator = Generator(problem, self.options)

    def learn(self, task: Task) -> None:
        """First the solver, from the decoders as the task finds them; then a decoder for the task."""
        learn_beside(self.solver, task, self.generator.tasks + 1, self.generator.drawing())
        self.generator.learn(tensors(task)[0])

    def parts(self) -> tuple[Part, ...]:
        """Solver and generator."""
        return self.solver, self.generator
