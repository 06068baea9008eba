"""Variational autoencoders (Kingma & Welling 2014), the generators of deep generative replay.

q(z | x) is a diagonal Gaussian, p(z) is the standard one, and p(x | z) is a Bernoulli distribution for each
value of an image (each channel of each pixel), which is read as a probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn

from logcl.core.settings import ImageShape

Decode = Callable[[Tensor], Tensor]
"""Latents (n, latent) to one logit per value of an image, (n, values)."""
_USUAL = 28 * 28  # values of the images that the published hyperparameters are for


def hidden_sizes(units: Iterable[int], image_shape: ImageShape) -> tuple[int, ...]:
    """Units per hidden layer, limited to twice the values of an image, since tiny images need fewer."""
    return tuple(min(count, 2 * math.prod(image_shape)) for count in units)


def latent_size(entries: int, image_shape: ImageShape) -> int:
    """Entries of z, limited to a quarter of the values of an image."""
    return min(entries, max(math.prod(image_shape) // 4, 1))


class Encoder(nn.Module):
    """q(z | x): images (n, C, H, W) in [0, 1] to mean and log variance, (n, latent) each."""

    def __init__(self, image_shape: ImageShape, hidden: Iterable[int], latent: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), *mlp([math.prod(image_shape), *hidden, 2 * latent]))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance."""
        mean, log_variance = self.layers(image).chunk(2, dim=1)
        return mean, log_variance


class Decoder(nn.Module):
    """p(x | z): latents (n, latent) to logits (n, values)."""

    def __init__(self, latent: int, hidden: Iterable[int], image_shape: ImageShape) -> None:
        super().__init__()
        self.layers = mlp([latent, *hidden, math.prod(image_shape)])

    def forward(self, latents: Tensor) -> Tensor:
        """The logits."""
        logits: Tensor = self.layers(latents)
        return logits


def mlp(sizes: list[int]) -> nn.Sequential:
    """Linear layers from each size to the next, with a ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def gaussian_kl(mean: Tensor, log_std: Tensor, prior_mean: Tensor, prior_log_std: Tensor) -> Tensor:
    """KL(N(mean, std²) ‖ N(prior_mean, prior_std²)) per entry, in nats."""
    ratio = (2 * (log_std - prior_log_std)).exp()
    squares = ratio + (mean - prior_mean).square() * (-2 * prior_log_std).exp()
    return prior_log_std - log_std + squares / 2 - 0.5


def negative_elbo(encoder: nn.Module, decode: Decode, images: Tensor) -> Tensor:
    """Cross-entropy + KL(q(z | x) ‖ p(z)) of images (n, C, H, W) in [0, 1]: (n,), in nats per value.

    Per value and not per image, as in van de Ven & Tolias 2018 and von Oswald et al. 2020, so that terms
    added to the loss keep their published weights. The KL term is divided by at least 28·28 = 784: smaller
    images gain too little in cross-entropy to pay for it, and nearly all latents would collapse to the prior.
    """
    mean, log_variance = encoder(images)
    logits = decode(mean + torch.exp(log_variance / 2) * torch.randn_like(mean))
    values = images.flatten(1)
    entropy = nn.functional.binary_cross_entropy_with_logits(logits, values, reduction="none").mean(dim=1)
    divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2
    loss: Tensor = entropy + divergence / max(values.shape[1], _USUAL)
    return loss


def as_images(logits: Tensor, image_shape: ImageShape) -> Tensor:
    """The mean of p(x | z), not a draw from it, as uint8 (n, C, H, W) on the CPU."""
    return logits.sigmoid().mul(255).round().to(torch.uint8).reshape(-1, *image_shape).cpu()
