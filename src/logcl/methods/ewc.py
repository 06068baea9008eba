"""Elastic weight consolidation (Kirkpatrick et al. 2017), and its online form (Schwarz et al. 2018)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from logcl.core.settings import Frozen
from logcl.methods.parts.solver import Incremental, flat_weights, tensors
from logcl.nn.images import to_unit
from logcl.nn.training import seeded
from logcl.streams import Task

_GRADIENTS = 2**26  # entries of per-sample gradients in memory at once


class EWCOptions(Frozen):
    """Hyperparameters of EWC."""

    importance: float = Field(1e6, ge=0)
    """λ: weight of the penalties. Large, because the Fisher information of a confident network is tiny."""
    fisher_samples: int = Field(1000, ge=1)
    """Samples per task from which the diagonal of the Fisher information is estimated."""
    online: bool = False
    """One running penalty instead of one per task: memory stops growing."""
    decay: float = Field(1.0, ge=0, le=1)
    """γ: how much of the old Fisher information remains after each task; online only."""


class OnlineEWCOptions(EWCOptions):
    """Hyperparameters of online EWC."""

    online: bool = True
    """One running penalty instead of one per task: memory stops growing."""


class EWC(Incremental):
    """loss = cross-entropy of the task + λ ½ Σ_t F_t (θ - θ*_t)²; F is the diagonal Fisher information."""

    name = "ewc"
    summary = "elastic weight consolidation"
    Options = EWCOptions
    options: EWCOptions
    by_weight = True
    kept = (*Incremental.kept, "means", "fisher")
    means = torch.empty(0)
    """θ*_t, one row per penalty: the weights to stay near."""
    fisher = torch.empty(0)
    """F_t, one row per penalty: how strictly."""

    def learn(self, task: Task) -> None:
        """Train on the task under the penalties of all earlier ones, then add its own."""
        images, labels = tensors(task)
        network = self.network
        self.train(
            labels,
            lambda rows: self.loss(images[rows], labels[rows]) + self.penalty(flat_weights(network)),
        )
        work = self.problem.work(self.fits, 1)
        some = images[torch.randperm(len(images), generator=work.generator)[: self.options.fisher_samples]]
        with self.problem.clock("train"), seeded(work.generator):
            fisher = fisher_information(network, some)
        self.consolidate(flat_weights(network).detach(), fisher)

    def penalty(self, weights: Tensor) -> Tensor:
        """½ Σ_t Σ_i λ F_t,i (θ_i - θ*_t,i)²."""
        if not len(self.means):
            return torch.zeros((), device=weights.device)
        stiffness = self.options.importance * self.fisher
        if self.recipe.optimiser == "sgd":
            # With a stiffer sum of penalties, SGD overshoots further with each step; Adam does not.
            most = (1 - self.recipe.momentum) / self.recipe.learning_rate
            stiffness = stiffness.clamp(max=most / len(self.fisher))
        return 0.5 * (stiffness * (weights - self.means).square()).sum()

    def consolidate(self, weights: Tensor, fisher: Tensor) -> None:
        """Add a penalty around these weights; online: F ← γ F + F_t, a single one around the newest."""
        if self.options.online:
            earlier = self.fisher.to(fisher).sum(dim=0)
            self.means, self.fisher = weights[None], (fisher + self.options.decay * earlier)[None]
        else:
            self.means = torch.cat([self.means.to(weights), weights[None]])
            self.fisher = torch.cat([self.fisher.to(fisher), fisher[None]])


class OnlineEWC(EWC):
    """EWC with a single penalty: F ← γ F + F_t, around the newest weights."""

    name = "ewc-online"
    summary = "elastic weight consolidation with one running penalty"
    Options = OnlineEWCOptions


def fisher_information(network: nn.Module, pixels: Tensor) -> Tensor:
    """Mean squared gradient of log p(y | x) over uint8 images, y drawn from the network's own prediction.

    This is the true Fisher information; with the true labels it would be the "empirical" one.
    """
    weights = {name: value.detach() for name, value in network.named_parameters()}
    buffers = dict(network.named_buffers())

    def log_likelihood(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        scores = functional_call(network, (weights, buffers), (image[None],))
        return -nn.functional.cross_entropy(scores, label[None])

    gradients = vmap(grad(log_likelihood), in_dims=(None, 0, 0))
    size = sum(value.numel() for value in weights.values())
    total = torch.zeros(size)
    for block in to_unit(pixels).split(min(max(_GRADIENTS // size, 1), 256)):
        images = block.to(next(iter(weights.values())).device)
        with torch.no_grad():
            drawn = torch.multinomial(network(images).softmax(dim=1), 1)[:, 0]
        squares = [value.square().sum(dim=0) for value in gradients(weights, images, drawn).values()]
        total = total.to(images) + torch.cat([value.reshape(-1) for value in squares])
    return total / len(pixels)
