"""The classifier that all methods share: same network, same recipe, same augmentation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core.errors import NotTrained
from logcl.core.settings import Recipe
from logcl.methods.parts.exemplars import Exemplars
from logcl.methods.parts.protocol import Method, Problem
from logcl.nn import blobs
from logcl.nn.classification import (
    averages,
    batch_loss,
    batch_scores,
    cross_entropy,
    new_network,
    predict_proba,
)
from logcl.nn.networks import ImageClassifier
from logcl.nn.training import fit, shortened
from logcl.streams import Task

Batch = tuple[Tensor, Tensor]
"""uint8 images (n, C, H, W) and class numbers (n,)."""


class Incremental(Method):
    """A method with one network, trained task by task, and the classes it has seen.

    Each fit has a new optimiser and schedule; its randomness depends on the seed and the number of earlier
    fits.
    """

    kept: tuple[str, ...] = ("seen", "fits", "network")
    pixels: ClassVar[torch.dtype] = torch.uint8
    """The type in which the buffer stores images."""
    by_weight: ClassVar[bool] = False
    """Whether its loss says how far each weight may move. Then `adam` replaces `muon`, which moves whole
    filters, and labels are not smoothed: a network that is never sure gives every weight a say."""
    fits = 0
    buffer: Exemplars
    """Samples within the budget, for methods that keep these."""

    def __init__(self, problem: Problem, options: object = None) -> None:
        super().__init__(problem, options)
        self.recipe = problem.settings.classifier
        if self.by_weight:
            optimiser = "adam" if self.recipe.optimiser == "muon" else self.recipe.optimiser
            changes = {"optimiser": optimiser, "label_smoothing": 0.0}
            self.recipe = self.recipe.model_copy(update=changes)
        self.seen = torch.zeros(len(problem.classes), dtype=torch.bool)
        if self.keeps == "budget":
            self.buffer = Exemplars(problem, self.pixels)

    @cached_property
    def network(self) -> ImageClassifier:
        """The network, with random weights before the first fit."""
        return new_network(self.problem.network, self.problem.work(self.fits))

    def scores(self, pixels: Tensor) -> Tensor:
        """Logits (n, classes) of uint8 images, augmented as in all training."""
        return batch_scores(self.network, pixels, self.recipe)

    def loss(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of uint8 images, augmented."""
        return batch_loss(self.network, pixels, labels, self.recipe)

    def train(
        self,
        labels: Tensor,
        loss: Callable[[Tensor], Tensor],
        after_step: Callable[[], None] | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        """Minimise `loss(rows)` over the rows of `labels`, whose classes may be predicted from now on."""
        self.seen[labels] = True
        work = self.problem.work(self.fits)
        if "network" not in vars(self):
            self.network = new_network(self.problem.network, work)
        self.network.requires_grad_(True)
        with self.problem.clock("train"):
            fit(self.network, loss, len(labels), recipe or self.recipe, work, after_step=after_step)
        self.fits += 1

    def train_on(self, images: Tensor, labels: Tensor) -> None:
        """Train on uint8 images and class numbers."""
        self.train(labels, lambda rows: self.loss(images[rows], labels[rows]))

    def retrain_on(self, images: Tensor, labels: Tensor) -> None:
        """Train on everything a method remembers, from scratch or warm, like LogCL's global model.

        As there, the outputs of other classes are left out of the loss: once pushed down, they would handicap
        a warm start with new classes.
        """
        recipe = self.recipe
        if not recipe.warm_start:
            vars(self).pop("network", None)
        elif "network" in vars(self):
            recipe = shortened(recipe, recipe.warm_share)
        self.seen.zero_()  # a buffer may have dropped the last sample of a class
        known, number = labels.unique(return_inverse=True)

        def loss(rows: Tensor) -> Tensor:
            scores = self.scores(images[rows])
            return cross_entropy(scores[:, known.to(scores.device)], number[rows], recipe)

        self.train(labels, loss, recipe=recipe)

    def class_scores(self, x: NDArray[np.uint8]) -> NDArray[np.float32]:
        """How well each class fits each image: (n, classes)."""
        return predict_proba(self.network, x, mirrored=averages(self.recipe))

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The class of each image with the highest score, among those seen."""
        if not self.seen.any():
            raise NotTrained("this method has seen no task yet; learn one first")
        allowed = np.where(self.seen.numpy(), self.class_scores(x), -np.inf)
        return np.asarray(allowed.argmax(axis=1), dtype=np.int64)


class Retrained(Incremental):
    """A method whose network is trained on everything it remembers when a prediction is needed.

    Training starts from scratch or, with `classifier.warm_start`, from the previous network.
    """

    kept: tuple[str, ...] = ("tasks",)
    tasks = 0
    current = False
    """Whether the network has been trained since the last task."""

    def __init__(self, problem: Problem, options: object = None) -> None:
        super().__init__(problem, options)
        if self.recipe.warm_start:
            self.bookkeeping = (*self.bookkeeping, "current", *Incremental.kept)

    def everything(self) -> Batch:
        """Everything the method remembers, by default its buffer."""
        return self.buffer.x, self.buffer.y

    def classifier_bytes(self) -> int:
        """As LogCL stores its own: in half precision."""
        if "network" in self.kept or "network" not in vars(self):
            return 0
        return sum(value.nbytes for value in blobs.weights(self.network, "network", "half").values())

    def outdated(self) -> None:
        """Note that a task was learned: retrain before the next prediction."""
        self.tasks += 1
        self.current = False

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The most probable class of each image, among those remembered."""
        if self.tasks and not self.current:
            self.fits = self.tasks
            self.retrain_on(*self.everything())
            self.current = True
        return super().predict(x)


def tensors(task: Task) -> Batch:
    """Images and class numbers of a task, copied because it may be a read-only memory map."""
    return torch.from_numpy(np.array(task.x)), torch.from_numpy(np.array(task.y))


def flat_weights(network: nn.Module) -> Tensor:
    """All weights in one vector, differentiable."""
    return torch.cat([value.reshape(-1) for value in network.parameters()])
