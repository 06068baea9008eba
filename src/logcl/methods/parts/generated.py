"""Deep generative replay: train on new samples and on generated ones, labelled by the previous classifier.

The generators are variational autoencoders (Kingma & Welling 2014): q(z | x) is a diagonal Gaussian, p(z) is
the standard one, and p(x | z) is a Bernoulli distribution for each value of an image (each channel of each
pixel), which is read as a probability.
"""

from __future__ import annotations

import abc
import copy
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from logcl.core.settings import ImageShape
from logcl.methods.parts.solver import Incremental, tensors
from logcl.nn.classification import cross_entropy
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import Work, seeded
from logcl.streams import Task

Draw = Callable[[int], Tensor]
"""Generates n uint8 images (n, C, H, W) of earlier tasks, with torch's global random state."""
_USUAL = 28 * 28  # values of the images that the published hyperparameters are for


class DeepReplay(Incremental):
    """A solver (the classifier) and a generator, both trained on each task and on images of earlier ones."""

    kept: tuple[str, ...] = (*Incremental.kept, "generator")
    Generator: ClassVar[type[nn.Module]]
    """The generator's network, built from the image shape and the options."""
    key: ClassVar[int]
    """Keeps the generator's randomness apart from the classifier's."""

    @cached_property
    def generator(self) -> Any:
        """The generator, with random weights before the first task."""
        with seeded(self.work().generator):
            return self.Generator(self.problem.settings.image_shape, self.options).to(choose_device())

    def work(self, *key: int) -> Work:
        """The random generator and progress of one fit of the generator."""
        return self.problem.work(self.key, *key, name="generator")

    @abc.abstractmethod
    def drawing(self) -> Draw:
        """A function that draws images from the generator as it is now."""

    @abc.abstractmethod
    def train_generator(self, images: Tensor) -> None:
        """Train the generator on the uint8 images of a new task."""

    def learn(self, task: Task) -> None:
        """Train the solver first, while the generator still knows only the earlier tasks.

        The solver's equation of deep generative replay (Shin et al. 2017): in task T, the loss of new samples
        has weight 1/T, that of replayed ones 1 - 1/T. Each step replays a full batch, however small the task.
        """
        images, labels = tensors(task)
        number, unseen = self.fits + 1, ~self.seen
        if number > 1:
            draw, previous = self.drawing(), copy.deepcopy(self.network).eval()

        def loss(rows: Tensor) -> Tensor:
            if number == 1:
                return self.loss(images[rows], labels[rows])
            old = draw(self.recipe.batch_size)
            with torch.no_grad():
                logits = previous(to_unit(old.to(choose_device()))).cpu()
            # In one batch, so that batch statistics do not separate new from replayed samples.
            scores = self.scores(torch.cat([images[rows], old]))
            targets = torch.cat([labels[rows], logits.masked_fill(unseen, -torch.inf).argmax(dim=1)])
            return weighted(cross_entropy(scores, targets, self.recipe, "none"), len(rows), number)

        self.train(labels, loss)
        self.train_generator(images)


def weighted(losses: Tensor, new: int, number: int) -> Tensor:
    """1/T times the mean loss of the first `new` samples plus 1 - 1/T times that of the rest, replayed."""
    return losses[:new].mean() / number + losses[new:].mean() * (1 - 1 / number)


def limited(units: Iterable[int], latent: int, image_shape: ImageShape) -> list[int]:
    """Units per hidden layer, then entries of z: at most twice and a quarter of the values of an image."""
    values = math.prod(image_shape)
    return [*(min(count, 2 * values) for count in units), min(latent, max(values // 4, 1))]


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


def negative_elbo(encoder: nn.Module, decode: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Cross-entropy + KL(q(z | x) ‖ p(z)) of images (n, C, H, W) in [0, 1]: (n,), in nats per value.

    `encoder` takes flat images to mean and log variance of q(z | x), side by side: (n, 2 latent). `decode`
    takes latents (n, latent) to one logit per value of an image, (n, values).

    Per value and not per image, as in van de Ven & Tolias 2018 and von Oswald et al. 2020, so that terms
    added to the loss keep their published weights. The KL term is divided by at least 28·28 = 784: smaller
    images gain too little in cross-entropy to pay for it, and nearly all latents would collapse to the prior.
    """
    values = images.flatten(1)
    mean, log_variance = encoder(values).chunk(2, dim=1)
    logits = decode(mean + torch.exp(log_variance / 2) * torch.randn_like(mean))
    entropy = nn.functional.binary_cross_entropy_with_logits(logits, values, reduction="none").mean(dim=1)
    divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2
    loss: Tensor = entropy + divergence / max(values.shape[1], _USUAL)
    return loss


def as_images(logits: Tensor, image_shape: ImageShape) -> Tensor:
    """The mean of p(x | z), not a draw from it, as uint8 (n, C, H, W) on the CPU."""
    return logits.sigmoid().mul(255).round().to(torch.uint8).reshape(-1, *image_shape).cpu()
