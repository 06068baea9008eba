"""Deep generative replay (Shin et al. 2017) from a VAE (van de Ven & Tolias 2018, van de Ven et al. 2022)."""

from __future__ import annotations

import copy
import math

import torch
from pydantic import Field
from torch import Tensor, nn

from logcl.core.settings import Frozen, ImageShape, Recipe
from logcl.methods.parts.generated import DeepReplay, Draw, as_images, limited, mlp, negative_elbo, weighted
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import fit


class DGROptions(Frozen):
    """Hyperparameters of the generator; the classifier's are shared by all methods."""

    hidden: tuple[int, ...] = (400, 400)
    """Units of the hidden layers of encoder and decoder: van de Ven et al. 2022 on Split MNIST. At most twice
    the values of an image."""
    latent: int = Field(100, ge=1, le=65_536)
    """Entries of z, from the same paper. At most a quarter of the values of an image."""
    generator: Recipe = Recipe(epochs=20, min_steps=800, learning_rate=3e-3)
    """How the VAE is trained on each task: Adam and batches of 128 as in that paper, and about its 2000 steps
    on Split MNIST."""


class VAE(nn.Module):
    """Encoder and decoder."""

    def __init__(self, image_shape: ImageShape, options: DGROptions) -> None:
        super().__init__()
        self.image_shape, values = image_shape, math.prod(image_shape)
        *hidden, self.latent = limited(options.hidden, options.latent, image_shape)
        self.encoder = mlp([values, *hidden, 2 * self.latent])
        self.decoder = mlp([self.latent, *hidden[::-1], values])

    def losses(self, pixels: Tensor) -> Tensor:
        """The negative ELBO of each uint8 image: (n,), in nats per value."""
        return negative_elbo(self.encoder, self.decoder, to_unit(pixels.to(choose_device())))

    @torch.no_grad()
    def draw(self, count: int) -> Tensor:
        """uint8 images (count, C, H, W) decoded from latents of the prior."""
        latents = torch.randn(count, self.latent, device=choose_device())
        return as_images(self.decoder(latents), self.image_shape)


class DGRVAE(DeepReplay):
    """A VAE as the generator, trained task by task."""

    name = "dgr-vae"
    summary = "deep generative replay from a VAE"
    Options = DGROptions
    options: DGROptions
    kept = (*DeepReplay.kept, "tasks")
    Generator, key = VAE, 0xD6
    generator: VAE
    tasks = 0

    def drawing(self) -> Draw:
        """Draws from a copy of the VAE."""
        return copy.deepcopy(self.generator).draw

    def train_generator(self, images: Tensor) -> None:
        """Train on new images and on replay from the VAE as it was before the task."""
        self.tasks += 1
        vae, number, draw = self.generator, self.tasks, self.drawing()

        def loss(rows: Tensor) -> Tensor:
            if number == 1:
                return vae.losses(images[rows]).mean()
            old = draw(self.options.generator.batch_size)
            return weighted(vae.losses(torch.cat([images[rows], old])), len(rows), number)

        with self.problem.clock("train"):
            fit(vae, loss, len(images), self.options.generator, self.work(number))
