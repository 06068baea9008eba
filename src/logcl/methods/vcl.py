"""Variational continual learning (Nguyen, Li, Bui and Turner 2018), with a coreset.

A distribution over weights instead of weights: q_t(θ) = Π N(μ, σ²). What is known of all earlier tasks is
q_{t-1}, and it becomes the prior of the next task:

    q_t = argmax  E_q [mean log p(y | x, θ)]  -  KL(q ‖ q_{t-1}) / n,          n samples in the task

A few samples of each class, the coreset, are held out of this. Before a prediction a copy of q_t is refined
on all of them, with q_t as its prior; the copy answers and is thrown away.

There is one head for all classes, and nobody says which task an image is from: class-incremental use. The
authors' split experiments have a head a task and are told which; without that, q_t alone forgets nearly as
much as fine-tuning (Farquhar and Gal 2018), and what is remembered is remembered by the coreset.
"""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl.core.errors import NotTrained
from logcl.core.images import rows_at_once
from logcl.core.settings import Frozen, Recipe
from logcl.methods.parts.exemplars import Exemplars
from logcl.methods.parts.protocol import Method, Part, Problem, State
from logcl.methods.parts.solver import tensors
from logcl.nn import blobs
from logcl.nn.augmentation import augment
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import fit, seeded
from logcl.streams import Task

_REFINE, _DRAW, _HOLD_OUT = 1, 2, 3  # set the randomness of these apart from that of the posterior's own fit


class VCLOptions(Frozen):
    """The posterior, how it is fitted, and how often it is asked."""

    width: int | None = Field(None, ge=1, le=65_536)
    """Units in each of the two hidden layers; None is twice an image's values, from 64 to 256, which is the
    authors' for split MNIST."""
    log_std: float = Field(-3.0, ge=-20, le=0)
    """Logarithm of all standard deviations at the beginning, as in the authors' code (log variance -6)."""
    tempering: float = Field(0.05, gt=0)
    """Weight of the KL term, as in Loo et al. (2021). 1 is the paper's bound, for tasks of 12,000 samples; a
    few hundred cannot move so many weights against it (all digits after five tasks: 0.3 instead of 0.9)."""
    samples: int = Field(50, ge=1, le=10_000)
    """Networks drawn from the posterior for a prediction; the authors draw 100."""
    training: Recipe = Recipe(epochs=20, min_steps=600, learning_rate=1e-3)
    """How q_t is fitted. Adam at 1e-3 as the authors, who make 120 passes with the whole task as a batch."""
    refining: Recipe = Recipe(epochs=20, min_steps=400, learning_rate=1e-3)
    """How the copy that predicts is fitted to the coreset; the authors treat it like a task."""


class Gaussians(nn.Module):
    """q(θ): a mean and a log standard deviation for each weight of an MLP with two hidden layers.

    Each layer is one matrix (outputs, inputs + 1); the last column is the bias.
    """

    def __init__(self, sizes: tuple[int, ...], log_std: float) -> None:
        super().__init__()
        shapes = [(outputs, inputs + 1) for inputs, outputs in pairwise(sizes)]
        self.means = nn.ParameterList(torch.randn(shape) * math.sqrt(1 / shape[1]) for shape in shapes)
        self.log_stds = nn.ParameterList(torch.full(shape, log_std) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of images, each with noise of its own: the local reparameterisation (Kingma et al. 2015).

        A layer's outputs are drawn instead of its weights: N(μ x, σ² x²), which has less variance.
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
        """One network: a weight matrix for each layer."""
        return [m + s.exp() * torch.randn_like(m) for m, s in zip(self.means, self.log_stds, strict=True)]

    def divergence(self, prior: Gaussians) -> Tensor:
        """KL(self ‖ prior), in nats."""
        total = torch.zeros((), device=self.means[0].device)
        for mean, log_std, at, log_scale in zip(
            self.means, self.log_stds, prior.means, prior.log_stds, strict=True
        ):
            squares = (2 * (log_std - log_scale)).exp() + (mean - at).square() * (-2 * log_scale).exp()
            total = total + (log_scale - log_std + squares / 2 - 0.5).sum()
        return total


class Posterior:
    """q_t, the classes that it has been shown, and the prediction made with a refined copy of it."""

    def __init__(self, problem: Problem, options: VCLOptions, coreset: Exemplars) -> None:
        self.problem, self.options, self.coreset = problem, options, coreset
        self.seen = torch.zeros(len(problem.classes), dtype=torch.bool)
        self.tasks = 0
        self._weights: Gaussians | None = None
        self._refined: Gaussians | None = None

    @property
    def weights(self) -> Gaussians:
        """q_t; small random means before the first task."""
        if self._weights is None:
            values = math.prod(self.problem.settings.image_shape)
            width = self.options.width or min(max(2 * values, 64), 256)
            with seeded(self.problem.work(0).generator):
                sizes = (values, width, width, len(self.seen))
                self._weights = Gaussians(sizes, self.options.log_std).to(choose_device())
        return self._weights

    def update(self, images: Tensor, labels: Tensor) -> None:
        """q_{t-1} → q_t by the samples of a task."""
        prior = self._prior()
        self.seen[labels] = True
        self.tasks += 1
        self._refined = None
        self._fit(self.weights, prior, images, labels, self.options.training, 0)

    def _prior(self) -> Gaussians:
        """q_{t-1}; N(0, 1) before the first task, and for the head of a class before its first."""
        prior = copy.deepcopy(self.weights).requires_grad_(False)
        layers = [*zip(prior.means, prior.log_stds, strict=True)]
        for number, matrices in enumerate(layers):
            if self.tasks == 0 or number == len(layers) - 1:
                rows = torch.ones(len(matrices[0]), dtype=torch.bool) if self.tasks == 0 else ~self.seen
                for matrix in matrices:
                    matrix[rows] = 0.0  # log σ = 0 is σ = 1
        return prior

    def _fit(
        self, q: Gaussians, prior: Gaussians, images: Tensor, labels: Tensor, recipe: Recipe, key: int
    ) -> None:
        """Maximise the lower bound, a sample's share of it: mean log-likelihood - KL / n."""
        device, settings = choose_device(), self.problem.settings.classifier
        closed = ~self.seen.to(device)

        def loss(rows: Tensor) -> Tensor:
            image = augment(to_unit(images[rows].to(device)), settings)
            scores = q(image).masked_fill(closed, -math.inf)
            likelihood = -nn.functional.cross_entropy(scores, labels[rows].to(device))
            return self.options.tempering * q.divergence(prior) / len(labels) - likelihood

        with self.problem.clock("train"):
            fit(q, loss, len(labels), recipe, self.problem.work(self.tasks, key))

    def refined(self) -> Gaussians:
        """q_t after the coreset, for prediction only."""
        if self._refined is None:
            self._refined = copy.deepcopy(self.weights).requires_grad_(True)
            if len(self.coreset):
                prior = copy.deepcopy(self.weights).requires_grad_(False)
                x, y = self.coreset.x, self.coreset.y
                self._fit(self._refined, prior, x, y, self.options.refining, _REFINE)
        return self._refined

    @torch.no_grad()
    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The class of the highest mean probability over networks drawn from the refined posterior."""
        if not self.seen.any():
            raise NotTrained("this method has seen no task yet; learn one first")
        with torch.enable_grad():
            q = self.refined()
        with seeded(self.problem.work(self.tasks, _DRAW).generator):
            networks = [q.drawn() for _ in range(self.options.samples)]
        rows = rows_at_once(x.shape[1:])
        device = choose_device()
        answers = [torch.empty(0, dtype=torch.int64)]
        for start in range(0, len(x), rows):
            image = to_unit(torch.from_numpy(x[start : start + rows].copy()).to(device)).flatten(1)
            total = sum(self._probabilities(weights, image) for weights in networks)
            assert isinstance(total, Tensor)
            answers.append(total.argmax(dim=1).cpu())
        return torch.cat(answers).numpy()

    def _probabilities(self, weights: list[Tensor], x: Tensor) -> Tensor:
        for number, matrix in enumerate(weights):
            x = nn.functional.linear(x if number == 0 else x.relu(), matrix[:, :-1], matrix[:, -1])
        return x.masked_fill(~self.seen.to(x.device), -math.inf).softmax(dim=1)

    def state(self) -> State:
        """q_t, which is the next prior too; the refined copy can be made again."""
        known = {"seen": self.seen.clone(), "tasks": torch.tensor(self.tasks)}
        return known | (blobs.weights(self.weights, "posterior") if self._weights is not None else {})

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.seen, self.tasks, self._refined = state["seen"].clone(), int(state["tasks"]), None
        mine = {k.removeprefix("posterior."): v for k, v in state.items() if k.startswith("posterior.")}
        if mine:
            self.weights.load_state_dict(mine)


class VCL(Method):
    """A posterior that goes on from task to task, and a coreset: as many of each class, drawn at random."""

    Options = VCLOptions
    options: VCLOptions
    keeps = "budget"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.coreset = Exemplars(problem)
        self.solver: Posterior = Posterior(problem, self.options, self.coreset)

    def learn(self, task: Task) -> None:
        """Hold out the coreset's share, update the posterior by the rest."""
        images, labels = tensors(task)
        held = self._held_out(labels)
        self.coreset.append(images[held], labels[held])
        self.solver.update(images[~held], labels[~held])

    def _held_out(self, labels: Tensor) -> Tensor:
        """Which samples of a task go to the coreset: at random, of each class what its share still lacks.

        At most half of a class's samples, so that the posterior hears of every class.
        """
        share = max(self.coreset.capacity // len(self.problem.classes), 1)
        order = torch.randperm(
            len(labels), generator=self.problem.work(self.solver.tasks, _HOLD_OUT).generator
        )
        chosen = []
        for label in labels.unique():
            mine = order[labels[order] == label]
            lacks = max(share - int((self.coreset.y == label).sum()), 0)
            chosen.append(mine[: min(lacks, len(mine) // 2)])
        room = max(self.coreset.capacity - len(self.coreset), 0)
        held = torch.zeros(len(labels), dtype=torch.bool)
        held[torch.cat(chosen)[:room]] = True
        return held

    def parts(self) -> tuple[Part, ...]:
        """The posterior and the coreset."""
        return self.solver, self.coreset
