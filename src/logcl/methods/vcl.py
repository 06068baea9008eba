"""Variational continual learning (Nguyen, Li, Bui and Turner 2018), with a coreset.

Instead of weights there is a distribution over weights, q_t(θ) = Π N(μ, σ²). All that is known about earlier
tasks is q_{t-1}, the prior of the next task:

    q_t = argmax  E_q [mean log p(y | x, θ)]  -  KL(q ‖ q_{t-1}) / n,          n samples in the task

A few samples per class, the coreset, are held out. For predictions a copy of q_t is refined on them, with q_t
as its prior, and then discarded.

Unlike in the authors' split experiments there is one head for all classes: without task labels, q_t alone
forgets nearly as much as fine-tuning (Farquhar and Gal 2018), and the coreset does most of the remembering.
"""

from __future__ import annotations

import copy
import math
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl.core.settings import Frozen, Recipe
from logcl.methods.parts.generated import gaussian_kl
from logcl.methods.parts.solver import Incremental, tensors
from logcl.nn.augmentation import augment
from logcl.nn.classification import in_blocks
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import fit, seeded
from logcl.streams import Task

_FIT, _REFINE, _DRAW, _HOLD_OUT = range(4)  # keys of independent randomness


class VCLOptions(Frozen):
    """Hyperparameters of VCL."""

    width: int | None = Field(None, ge=1, le=65_536)
    """Units in each of the two hidden layers; None is twice the values of an image, from 64 to 256."""
    log_std: float = Field(-3.0, ge=-20, le=0)
    """Initial logarithm of all standard deviations, as in the authors' code (log variance -6)."""
    tempering: float = Field(0.05, gt=0)
    """Weight of the KL term (Loo et al. 2021); the paper's 1 is too strong for a few hundred samples."""
    samples: int = Field(50, ge=1, le=10_000)
    """Networks drawn from the posterior for a prediction; the authors draw 100."""
    training: Recipe = Recipe(epochs=20, min_steps=600, learning_rate=1e-3)
    """How q_t is fitted: Adam at 1e-3 as the authors, who take 120 epochs, each in one batch."""
    refining: Recipe = Recipe(epochs=20, min_steps=400, learning_rate=1e-3)
    """How the copy that predicts is fitted to the coreset; the authors treat it like a task."""


class Gaussians(nn.Module):
    """q(θ): a mean and a log standard deviation per weight of an MLP.

    Each layer is one matrix (outputs, inputs + 1); the last column is the bias.
    """

    def __init__(self, sizes: tuple[int, ...], log_std: float) -> None:
        super().__init__()
        shapes = [(outputs, inputs + 1) for inputs, outputs in pairwise(sizes)]
        self.means = nn.ParameterList(torch.randn(shape) * math.sqrt(1 / shape[1]) for shape in shapes)
        self.log_stds = nn.ParameterList(torch.full(shape, log_std) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images, with the local reparameterisation (Kingma et al. 2015).

        A layer's outputs are drawn instead of its weights, N(μ x, σ² x²), which reduces the variance.
        """
        x = x.flatten(1)
        for number, (mean, log_std) in enumerate(zip(self.means, self.log_stds, strict=True)):
            x = x if number == 0 else x.relu()
            variance = (2 * log_std).exp()
            spread = nn.functional.linear(x.square(), variance[:, :-1], variance[:, -1])
            x = nn.functional.linear(x, mean[:, :-1], mean[:, -1])
            x = x + spread.sqrt() * torch.randn_like(x)
        return x

    def drawn(self) -> list[Tensor]:
        """One network: a weight matrix per layer."""
        return [m + s.exp() * torch.randn_like(m) for m, s in zip(self.means, self.log_stds, strict=True)]

    def divergence(self, prior: Gaussians) -> Tensor:
        """KL(self ‖ prior), in nats."""
        layers = zip(self.means, self.log_stds, prior.means, prior.log_stds, strict=True)
        return sum((gaussian_kl(*layer).sum() for layer in layers), start=torch.zeros(()))


class VCL(Incremental):
    """A posterior, updated task by task, and a coreset of random samples, equally many per class."""

    name = "vcl"
    summary = "the posterior over weights is the next task's prior; a coreset refines it for predictions"
    Options = VCLOptions
    options: VCLOptions
    keeps = "budget"
    kept = ("seen", "tasks", "posterior")
    tasks = 0

    @cached_property
    def posterior(self) -> Gaussians:
        """q_t; small random means before the first task."""
        values = math.prod(self.problem.settings.image_shape)
        width = self.options.width or min(max(2 * values, 64), 256)
        with seeded(self.problem.work(0).generator):
            sizes = (values, width, width, len(self.seen))
            return Gaussians(sizes, self.options.log_std).to(choose_device())

    def learn(self, task: Task) -> None:
        """Hold out samples for the coreset, and update q_{t-1} to q_t with the rest."""
        images, labels = tensors(task)
        held = self._held_out(labels)
        self.buffer.append(images[held], labels[held])
        prior = self._prior()
        self.seen[labels] = True
        self.tasks += 1
        vars(self).pop("refined", None)
        self._fit(self.posterior, prior, images[~held], labels[~held], self.options.training, _FIT)

    def _held_out(self, labels: Tensor) -> Tensor:
        """A mask of the samples for the coreset: random ones, until each class has its share.

        At most half of a class's samples, so that the posterior sees every class.
        """
        share = max(self.buffer.capacity // len(self.problem.classes), 1)
        generator = self.problem.work(self.tasks, _HOLD_OUT).generator
        order = torch.randperm(len(labels), generator=generator)
        chosen = []
        for label in labels.unique():
            rows = order[labels[order] == label]
            lacks = max(share - int((self.buffer.y == label).sum()), 0)
            chosen.append(rows[: min(lacks, len(rows) // 2)])
        room = max(self.buffer.capacity - len(self.buffer), 0)
        return torch.isin(torch.arange(len(labels)), torch.cat(chosen)[:room])

    def _prior(self) -> Gaussians:
        """q_{t-1}; N(0, 1) before the first task, and for the outputs of classes not seen yet."""
        prior = copy.deepcopy(self.posterior).requires_grad_(False)
        for matrices in (prior.means, prior.log_stds):
            matrices[-1][~self.seen] = 0.0  # log σ = 0 is σ = 1
            for matrix in matrices if not self.tasks else ():
                matrix.zero_()
        return prior

    def _fit(
        self, q: Gaussians, prior: Gaussians, images: Tensor, labels: Tensor, recipe: Recipe, key: int
    ) -> None:
        """Maximise the lower bound per sample: mean log-likelihood - KL / n."""
        device = choose_device()
        unseen = ~self.seen.to(device)

        def loss(rows: Tensor) -> Tensor:
            image = augment(to_unit(images[rows].to(device)), self.recipe)
            scores = q(image).masked_fill(unseen, -math.inf)
            likelihood = -nn.functional.cross_entropy(scores, labels[rows].to(device))
            return self.options.tempering * q.divergence(prior) / len(labels) - likelihood

        with self.problem.clock("train"):
            fit(q, loss, len(labels), recipe, self.problem.work(self.tasks, key))

    @cached_property
    def refined(self) -> Gaussians:
        """A copy of q_t fitted to the coreset, for predictions only."""
        copied, prior = (copy.deepcopy(self.posterior).requires_grad_(grad) for grad in (True, False))
        if len(self.buffer):
            self._fit(copied, prior, self.buffer.x, self.buffer.y, self.options.refining, _REFINE)
        return copied

    def class_scores(self, x: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The sum of the class probabilities of networks drawn from the refined posterior."""
        q = self.refined
        with torch.no_grad(), seeded(self.problem.work(self.tasks, _DRAW).generator):
            networks = [q.drawn() for _ in range(self.options.samples)]

        def probabilities(images: Tensor) -> Tensor:
            total = torch.zeros((), device=images.device)
            for first, *others in networks:
                x = nn.functional.linear(images.flatten(1), first[:, :-1], first[:, -1])
                for matrix in others:
                    x = nn.functional.linear(x.relu(), matrix[:, :-1], matrix[:, -1])
                total = total + x.masked_fill(~self.seen.to(x.device), -math.inf).softmax(dim=1)
            return total

        return in_blocks(probabilities, x).numpy()
