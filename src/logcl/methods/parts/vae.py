"""Variational autoencoders (Kingma & Welling 2014): the generators of the methods that replay from one.

q(z | x) is a normal distribution with independent entries, p(z) the standard one, p(x | z) a Bernoulli
distribution for each value of an image, grey or coloured, taken as a probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn

from logcl.core.settings import ImageShape

Decode = Callable[[Tensor], Tensor]
"""Latents (n, latent) to one logit for each value of an image, (n, values)."""
_USUAL = 28 * 28  # values of the images that the published hyperparameters are for


def hidden_sizes(units: Iterable[int], image_shape: ImageShape) -> tuple[int, ...]:
    """The units asked for, though never more than twice the values of an image: tiny images need fewer."""
    return tuple(min(count, 2 * math.prod(image_shape)) for count in units)


def latent_size(asked: int, image_shape: ImageShape) -> int:
    """The latent entries asked for, though never more than a quarter of the values of an image."""
    return min(asked, max(math.prod(image_shape) // 4, 1))


class Encoder(nn.Module):
    """q(z | x): images (n, C, H, W) in [0, 1] to mean and log variance, (n, latent) each."""

    def __init__(self, image_shape: ImageShape, hidden: Iterable[int], latent: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), *_linear([math.prod(image_shape), *hidden, 2 * latent]))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance."""
        mean, log_variance = self.layers(image).chunk(2, dim=1)
        return mean, log_variance


class Decoder(nn.Module):
    """p(x | z): latents (n, latent) to logits (n, values)."""

    def __init__(self, latent: int, hidden: Iterable[int], image_shape: ImageShape) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_linear([latent, *hidden, math.prod(image_shape)]))

    def forward(self, latents: Tensor) -> Tensor:
        """The logits."""
        logits: Tensor = self.layers(latents)
        return logits


def _linear(sizes: list[int]) -> list[nn.Module]:
    """Linear layers from each size to the next, a ReLU between two."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers[:-1]


def negative_elbo(encoder: nn.Module, decode: Decode, images: Tensor) -> Tensor:
    """Cross-entropy + KL(q(z | x) ‖ p(z)) of images (n, C, H, W) in [0, 1]: (n,), in nats a value.

    A value, not an image, as in van de Ven & Tolias 2018 and von Oswald et al. 2020: what is added to the
    loss keeps its published weight. A value of an image smaller than 28x28 is taken for the mean of so many
    values of one that is not, and its cross-entropy counts as theirs: otherwise so few grey values, whose
    cross-entropy is never small, would say too little for the latents to be used at all.
    """
    mean, log_variance = encoder(images)
    logits = decode(mean + torch.exp(log_variance / 2) * torch.randn_like(mean))
    values = images.flatten(1)
    entropy: Tensor = nn.functional.binary_cross_entropy_with_logits(logits, values, reduction="none").mean(
        dim=1
    )
    divergence: Tensor = (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2
    return entropy + divergence / max(values.shape[1], _USUAL)


def as_images(logits: Tensor, image_shape: ImageShape) -> Tensor:
    """What a decoder shows, rounded to uint8 (n, C, H, W) on the CPU: the mean of p(x | z), not a draw."""
    return logits.sigmoid().mul(255).round().to(torch.uint8).reshape(-1, *image_shape).cpu()
