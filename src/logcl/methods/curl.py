"""Continual unsupervised representation learning, CURL (Rao et al. 2019).

A variational autoencoder whose latent space is a mixture: x ← z ← y, with a component y = k per cluster.

    ELBO(x) = Σ_k q(k|x) [ E log p(x|z) - KL(q(z|x,k) ‖ p(z|k)) ]  -  KL(q(k|x) ‖ uniform)

Poorly explained samples are collected until there are enough for a new component. Earlier tasks are replayed
from a snapshot of the model, taken when a task starts: z ~ p(z|k), with k as the target of the new image.
Counting the labels of the samples assigned to each component gives p(label|k), and so the classifier:

    p(label|x) = Σ_k q(k|x) p(label|k)

With labels (`supervised`), q(k|x) in the ELBO is conditioned on the label and -log p(label|x) is added. There
is then one component per class: the paper's supervised variant.

How this differs from the paper is in docs/methods.md.
"""

from __future__ import annotations

import copy
import math
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl.core.errors import NotTrained
from logcl.core.images import rows_at_once
from logcl.core.settings import Frozen, Recipe
from logcl.methods.parts.generated import gaussian_kl, mlp
from logcl.methods.parts.protocol import Method, Problem, State
from logcl.methods.parts.solver import tensors
from logcl.nn.classification import in_blocks
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import fit, seeded
from logcl.streams import Task

_NEGLIGIBLE = 1e-3  # terms with a smaller q(k|x) are left out of the sum, which is cheaper and as good
_MEMORY = 0.95  # of the running mean and deviation, per batch


class CURLOptions(Frozen):
    """The mixture, how it grows and how it is trained."""

    supervised: bool = True
    """Whether labels decide which component a sample belongs to; if not, they only name components."""
    width: int | None = Field(None, ge=1, le=65_536)
    """Units in each of the two hidden layers; None is twice the values of an image, from 64 to 256."""
    latents: int = Field(32, ge=1, le=4096)
    """Dimensions of z, as in the paper."""
    components: int = Field(3, ge=1, le=1000)
    """Without labels: maximum number of components per class. The authors allow 25 for MNIST's 10 digits."""
    enough: int = Field(100, ge=1, le=1_000_000)
    """Poor samples that start a component, as in the paper; without labels, at most an eighth of a task."""
    poor: float = Field(1.5, gt=0)
    """Without labels: standard deviations above the running mean from which a negative ELBO is poor."""
    wait: int = Field(100, ge=0, le=1_000_000)
    """Without labels: steps after each new component in which no sample counts as poor; the authors' code."""
    training: Recipe = Recipe(epochs=20, min_steps=600, learning_rate=3e-3)
    """How the model is trained on a task and on replay; the authors have 1e-3 and many more steps."""
    starting: Recipe = Recipe(epochs=10, min_steps=50, learning_rate=1e-3, schedule="constant")
    """How a new component is first trained, on the poor samples alone; ten epochs as in the authors' code."""


class Mixture(nn.Module):
    """The generative model and its inference network, with room for `capacity` components.

    Inactive components cost no time, receive no gradients and are not saved.
    """

    def __init__(self, values: int, options: CURLOptions, capacity: int, noise: float) -> None:
        super().__init__()
        width, latents = options.width or min(max(2 * values, 64), 256), options.latents
        self.capacity, self.active, self.noise = capacity, 0, noise
        self.encoder = nn.Sequential(*mlp([values, width, width]), nn.ReLU())
        self.decoder = mlp([latents, width, width, values])
        # A row per component. Weights apply to the encoder's output and a constant 1.
        scale = math.sqrt(1 / width)
        self.tables = nn.ParameterDict()
        self.tables["choice"] = scale * torch.randn(capacity, width + 1)
        self.tables["posterior"] = scale * torch.randn(capacity, 2 * latents, width + 1)
        self.tables["prior"] = torch.zeros(capacity, 2 * latents)

    def features(self, x: Tensor) -> Tensor:
        """The encoder's output for flat images, with a 1: (n, width + 1)."""
        return nn.functional.pad(self.encoder(x), (0, 1), value=1.0)

    def choice(self, features: Tensor) -> Tensor:
        """log q(k|x) over the active components: (n, active)."""
        scores: Tensor = features @ self.tables["choice"][: self.active].T
        return scores.log_softmax(dim=1)

    def divergences(self, x: Tensor, features: Tensor, rows: Tensor, components: Tensor) -> Tensor:
        """The negative bracket of the ELBO, less the entropy of the pixels, for pairs of image and component.

        Per pair, in nats: KL(x ‖ p(x|z)) over pixels, z ~ q(z|x,k), plus KL(q(z|x,k) ‖ p(z|k)). The entropy
        does not depend on the model; with it subtracted, a perfect model has 0 for grey images too.
        """
        table = self.tables["posterior"][: self.active]
        mean, log_std = torch.einsum("nw,klw->nkl", features, table)[rows, components].chunk(2, dim=1)
        latent = gaussian_kl(mean, log_std, *self.tables["prior"][components].chunk(2, dim=1)).sum(dim=1)
        z = mean + log_std.exp() * torch.randn_like(mean)
        cost = nn.functional.binary_cross_entropy_with_logits(self.decoder(z), x[rows], reduction="none")
        entropy = -(torch.xlogy(x, x) + torch.xlogy(1 - x, 1 - x)).sum(dim=1)
        total: Tensor = cost.sum(dim=1) - entropy[rows] + latent
        return total

    def losses(self, x: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        """-ELBO - log Σ_k q(k|x) e(k), and -ELBO alone, per image (less the entropy of the pixels).

        The evidence e (n, active) is what is known about the component besides x: ones for nothing,
        p(label|k) for a label, one-hot for a replayed image. In the ELBO, q(k|x) is conditioned on it.
        """
        features = self.features(x + self.noise * torch.randn_like(x))
        log_joint = self.choice(features) + evidence.clamp(min=1e-30).log()
        known = log_joint.logsumexp(dim=1)
        log_weights = log_joint - known[:, None]
        weights = log_weights.exp() * (log_weights > math.log(_NEGLIGIBLE))
        rows, components = weights.nonzero(as_tuple=True)
        pairs = self.divergences(x, features, rows, components) * weights[rows, components]
        from_uniform = (weights * (log_weights + math.log(self.active))).sum(dim=1)
        bound = torch.zeros_like(known).index_add(0, rows, pairs) + from_uniform
        return bound - known, bound

    @torch.no_grad()
    def grow(self, x: Tensor) -> None:
        """Activate a component: a copy of the one to which most of `x` belongs."""
        if self.active:
            best = int(self.choice(self.features(x)).exp().sum(dim=0).argmax())
            for table in self.tables.values():
                table[self.active] = table[best]
        self.active += 1

    @torch.no_grad()
    def generate(self, components: Tensor) -> Tensor:
        """One flat image in [0, 1] per entry of `components`."""
        mean, log_std = self.tables["prior"][components].chunk(2, dim=1)
        images: Tensor = self.decoder(mean + log_std.exp() * torch.randn_like(mean)).sigmoid()
        return images


class CURL(Method):
    """A single growing mixture; no samples are kept."""

    name = "curl"
    summary = "a growing mixture VAE that replays itself; components predict by their labels"
    Options = CURLOptions
    options: CURLOptions
    kept = ("tasks", "running", "labels", "model")
    tasks = 0

    def __init__(self, problem: Problem, options: object = None) -> None:
        super().__init__(problem, options)
        classes = len(problem.classes)
        self.capacity = classes * (1 if self.options.supervised else self.options.components)
        self.labels = torch.zeros(self.capacity, classes)
        """Samples of each class assigned to each component: (components, classes)."""
        self.running = torch.zeros(2)
        """Running mean and mean square of the negative ELBO."""

    @cached_property
    def model(self) -> Mixture:
        """The mixture, without components before the first task."""
        values = math.prod(self.problem.settings.image_shape)
        noise = self.problem.settings.classifier.noise
        with seeded(self.problem.work(0).generator):
            return Mixture(values, self.options, self.capacity, noise).to(choose_device())

    def learn(self, task: Task) -> None:
        """Train on the task and on as much replay; add components where the task is not explained."""
        images, labels = tensors(task)
        images, model, device = images.flatten(1), self.model, choose_device()
        snapshot, shares = copy.deepcopy(model).requires_grad_(False), self.labels.sum(dim=1)
        before = self.labels.clone()
        poor = torch.zeros(len(labels), dtype=torch.bool)
        enough = min(self.options.enough, len(labels) // 8 + 1)
        waited = self.options.wait if self.tasks else 0
        self.tasks += 1

        def loss(rows: Tensor) -> Tensor:
            x, evidence = to_unit(images[rows].to(device)), self._evidence(labels[rows])
            if shares.any():
                components = torch.multinomial(shares, len(rows), replacement=True).to(device)
                x = torch.cat([x, snapshot.generate(components)])
                evidence = torch.cat([evidence, nn.functional.one_hot(components, model.active).float()])
            value, bound = model.losses(x, evidence)
            if not self.options.supervised:
                poor[rows] |= self._poor(bound[: len(rows)].detach().cpu())
            return value.mean()

        def grow() -> None:
            nonlocal waited
            waited += 1
            if waited <= self.options.wait:
                poor.zero_()
            elif model.active < model.capacity and int(poor.sum()) >= enough:
                self._expand(images[poor], labels[poor])
                poor.zero_()
                waited = 0

        # The very first samples and those of a new class need a component without any test.
        if self.options.supervised:
            for label in labels.unique():
                if not self.labels[:, label].any():
                    rows = (labels == label).nonzero()[: self.options.enough, 0]
                    self._expand(images[rows], labels[rows])
        elif not model.active:
            self._expand(images[:enough], labels[:enough])
        work = self.problem.work(self.tasks)
        with self.problem.clock("train"):
            fit(model, loss, len(labels), self.options.training, work, after_step=grow)
        self.labels = before + self._assigned(images, labels)

    def _expand(self, images: Tensor, labels: Tensor) -> None:
        """Add a component for these images; this trains only the tables, not the shared networks."""
        model, x = self.model, to_unit(images.to(choose_device()))
        model.grow(x)
        self.labels[model.active - 1] = labels.bincount(minlength=self.labels.shape[1]).float()
        evidence = torch.eye(model.active, device=x.device)[-1]

        def loss(rows: Tensor) -> Tensor:
            return model.losses(x[rows], evidence.expand(len(rows), -1))[0].mean()

        work = self.problem.work(self.tasks, model.active, name="new component")
        with self.problem.clock("train"):
            fit(model.tables, loss, len(x), self.options.starting, work)

    def _evidence(self, labels: Tensor) -> Tensor:
        """What labels say about components: (n, active)."""
        if not self.options.supervised:
            return torch.ones(len(labels), self.model.active, device=choose_device())
        return self._given_component()[:, labels].T.to(choose_device())

    def _given_component(self) -> Tensor:
        """p(label|k): (active, classes); zeros for a component without samples."""
        counts = self.labels[: self.model.active]
        return counts / counts.sum(dim=1, keepdim=True).clamp(min=1e-12)

    def _poor(self, bound: Tensor) -> Tensor:
        """Which samples of a batch are explained far worse than earlier ones; updates the running mean."""
        mean, square = self.running.tolist()
        deviation = math.sqrt(max(square - mean**2, 0.0))
        found: Tensor = bound > mean + self.options.poor * deviation
        now = torch.stack([bound.mean(), bound.square().mean()])
        if not square:  # the first batch
            self.running = now
            return torch.zeros_like(found)
        self.running = _MEMORY * self.running + (1 - _MEMORY) * now
        return found

    @torch.no_grad()
    def _assigned(self, images: Tensor, labels: Tensor) -> Tensor:
        """Samples of each class assigned to each component, in fractions: (components, classes)."""
        counts = torch.zeros_like(self.labels)
        for rows in torch.arange(len(labels)).split(rows_at_once(images.shape[1:])):
            x = to_unit(images[rows].to(choose_device()))
            joint = self.model.choice(self.model.features(x)).exp() * self._evidence(labels[rows])
            shares = (joint / joint.sum(dim=1, keepdim=True).clamp(min=1e-30)).cpu()
            classes = nn.functional.one_hot(labels[rows], counts.shape[1]).float()
            counts[: self.model.active] += shares.T @ classes
        return counts

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """argmax Σ_k q(k|x) p(label|k), over the components with samples."""
        if not self.tasks:
            raise NotTrained("this method has seen no task yet; learn one first")
        named = self._given_component().to(choose_device())

        def probabilities(images: Tensor) -> Tensor:
            scores = self.model.choice(self.model.features(images.flatten(1)))
            return scores.masked_fill(~named.any(dim=1), -math.inf).softmax(dim=1) @ named

        return in_blocks(probabilities, x).argmax(dim=1).numpy()

    def state(self) -> State:
        """The model with its active components, their labels, and the running mean."""
        return _resized(super().state(), self.model.active if self.tasks else 0)

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        super().restore(_resized(state, self.capacity))
        if self.tasks:
            self.model.active = len(state["labels"])


def _resized(state: State, components: int) -> State:
    """The state with room for this many components; new ones are zeros until they are activated."""
    tables = {name: value for name, value in state.items() if name == "labels" or ".tables." in name}
    return state | {
        name: nn.functional.pad(value, (0, 0) * (value.dim() - 1) + (0, components - len(value)))
        for name, value in tables.items()
    }
