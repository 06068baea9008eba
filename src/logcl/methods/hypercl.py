"""Continual learning with hypernetworks (von Oswald et al. 2020): HNET+R, for class-incremental streams.

A hypernetwork h(e_t, c_i; Θ) generates the weights of a VAE decoder for each task t, chunk by chunk i. Each
task has its own embedding e_t; the chunk embeddings c_i and Θ are shared by all tasks.
"""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import torch
from pydantic import Field
from torch import Tensor, nn

from logcl.core.settings import Frozen, ImageShape, Recipe
from logcl.methods.parts.generated import DeepReplay, Draw, as_images, limited, mlp, negative_elbo
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import fit, seeded


class HyperOptions(Frozen):
    """Hyperparameters of the generator, by default those of the authors' code for HNET+R on Split MNIST.

    The classifier's are shared by all methods.
    """

    encoder: tuple[int, ...] = (400, 400)
    """Units of the encoder's hidden layers. At most twice the values of an image."""
    decoder: tuple[int, ...] = (250, 350)
    """Units of the decoder's hidden layers, with the same limit."""
    latent: int = Field(100, ge=1, le=65_536)
    """Entries of z. At most a quarter of the values of an image."""
    embedding: int = Field(96, ge=1, le=65_536)
    """Length of the task embeddings and of the chunk embeddings."""
    hidden: tuple[int, ...] = (32, 32)
    """Units of the hypernetwork's hidden layers; the authors' 10 leave the chunks less freedom."""
    chunks: int = Field(32, ge=1, le=65_536)
    """Chunks of a decoder's weights; with one per unit of the last hidden layer, Θ has about as many."""
    beta: float = Field(0.05, ge=0)
    """β: weight of the regulariser, for a loss in nats per value; the authors have 0.01 for HNET+R."""
    held: int = Field(32, ge=1)
    """Earlier tasks in the regulariser, drawn for each step; the authors' number for long streams."""
    generator: Recipe = Recipe(epochs=20, min_steps=800, learning_rate=3e-3)
    """How hypernetwork, embedding and encoder are trained on each task: Adam and batches of 128 as in the
    paper, and on Split MNIST about its 2000 steps."""


class Hypernetwork(nn.Module):
    """h: task embeddings (t, embedding) to the weights of their decoders, (t, weights).

    The output is scaled by 1/√fan-in of the decoder's layer, so that all decoder weights start at the usual
    size, whichever chunk they come from.
    """

    scale: Tensor

    def __init__(self, image_shape: ImageShape, options: HyperOptions) -> None:
        super().__init__()
        self.image_shape = image_shape
        *hidden, self.latent = limited(options.decoder, options.latent, image_shape)
        self.sides = list(pairwise([self.latent, *hidden, math.prod(image_shape)]))
        """Inputs and outputs of each layer of a decoder."""
        self.counts = [(inputs + 1) * outputs for inputs, outputs in self.sides]
        scales = [torch.full(((i + 1) * outputs,), 1 / math.sqrt(i)) for i, outputs in self.sides]
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
        weights: Tensor = self.layers(torch.cat(inputs, dim=2)).flatten(1)
        return weights[:, : len(self.scale)] * self.scale

    def decode(self, weights: Tensor, latents: Tensor) -> Tensor:
        """Logits (t, n, values) of latents (t, n, latent), decoded with the weights of each task."""
        x = latents
        layers = zip(self.sides, weights.split(self.counts, dim=1), strict=True)
        for number, ((inputs, outputs), own) in enumerate(layers):
            matrix = own[:, :-outputs].reshape(-1, inputs, outputs)
            x = torch.baddbmm(own[:, None, -outputs:], x.relu() if number else x, matrix)
        return x


class HyperCL(DeepReplay):
    """HNET+R: a classifier trained on replay from the decoders that a hypernetwork generates.

    The look-ahead of equation 2 (the regulariser at Θ + ΔΘ, with the step ΔΘ about to be taken) is left out,
    which the authors' code allows, so that one backward pass per step is enough.
    """

    name = "hypercl"
    summary = "generative replay from decoders that a hypernetwork generates, one per task"
    Options = HyperOptions
    options: HyperOptions
    kept = (*DeepReplay.kept, "embeddings")
    Generator, key = Hypernetwork, 0x4E
    generator: Hypernetwork
    """Θ with the chunk embeddings."""
    embeddings = torch.empty(0)
    """e_1 to e_T, (T, embedding)."""

    @torch.no_grad()
    def drawing(self) -> Draw:
        """Draws from the decoders as they are now, equally many images per task."""
        network, tasks = self.generator, len(self.embeddings)
        weights = network(self.embeddings.to(choose_device()))

        @torch.no_grad()
        def draw(count: int) -> Tensor:
            latents = torch.randn(tasks, math.ceil(count / tasks), network.latent, device=choose_device())
            images = as_images(network.decode(weights, latents), network.image_shape)
            return images[torch.randperm(len(images))[:count]]

        return draw

    def train_generator(self, images: Tensor) -> None:
        """Train a decoder for the new images while the regulariser preserves those of earlier tasks."""
        network, options, device = self.generator, self.options, choose_device()
        old, before = self.embeddings.to(device), copy.deepcopy(network).requires_grad_(False)
        work = self.work(len(old) + 1)
        with seeded(work.generator):
            *hidden, latent = limited(options.encoder, options.latent, network.image_shape)
            encoder = mlp([math.prod(network.image_shape), *hidden, 2 * latent]).to(device)
            embedding = nn.Parameter(torch.randn(1, options.embedding, device=device))

        def loss(rows: Tensor) -> Tensor:
            held = old[torch.randperm(len(old))[: options.held]]
            weights = network(torch.cat([embedding, held]))

            def decode(latents: Tensor) -> Tensor:
                return network.decode(weights[:1], latents[None])[0]

            value = negative_elbo(encoder, decode, to_unit(images[rows].to(device))).mean()
            if not len(held):
                return value
            # Equation 2; the mean over the tasks drawn estimates the mean over all T - 1.
            moved: Tensor = (weights[1:] - before(held)).square().sum(dim=1).mean()
            return value + options.beta * moved

        trained = nn.ModuleList([encoder, network, nn.ParameterList([embedding])])
        with self.problem.clock("train"):
            fit(trained, loss, len(images), options.generator, work)
        self.embeddings = torch.cat([self.embeddings, embedding.detach().cpu()])
