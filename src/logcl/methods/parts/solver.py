"""The classifier that all methods share: same network, same recipe, same augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core.errors import NotTrained
from logcl.core.images import rows_at_once
from logcl.core.settings import Recipe
from logcl.methods.parts.protocol import BOOKKEEPING, Problem, State, without_prefix
from logcl.nn import blobs
from logcl.nn.classification import batch_loss, batch_scores, cross_entropy, new_network, predict_proba
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.networks import ImageClassifier
from logcl.nn.training import fit, shortened
from logcl.streams import Task

_UNCOUNTED = f"{BOOKKEEPING}classifier."


class Solver:
    """One network, trained task by task, and the classes it has seen.

    Each fit has a new optimiser and schedule; its randomness depends on the seed and the number of earlier
    fits.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.settings = problem.settings.classifier
        self.seen = torch.zeros(len(problem.classes), dtype=torch.bool)
        self.fits = 0
        self._network: ImageClassifier | None = None

    @property
    def network(self) -> ImageClassifier:
        """The network, with random weights before the first fit."""
        if self._network is None:
            # The weights that the first fit would draw, so that it does not matter which comes first.
            self._network = new_network(self.problem.network, self.problem.work(self.fits))
        return self._network

    def see(self, labels: Tensor | NDArray[np.int64]) -> None:
        """Allow predictions of these classes from now on."""
        self.seen[torch.as_tensor(labels)] = True

    def scores(self, pixels: Tensor) -> Tensor:
        """Logits (n, classes) of uint8 images, augmented as in all training."""
        return batch_scores(self.network, pixels, self.settings)

    def loss(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of uint8 images, augmented."""
        return batch_loss(self.network, pixels, labels, self.settings)

    def train(
        self,
        count: int,
        loss: Callable[[Tensor], Tensor],
        after_step: Callable[[], None] | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        """Minimise `loss(rows)` over `count` rows, by default with the recipe that all methods share."""
        work = self.problem.work(self.fits)
        if self._network is None:
            self._network = new_network(self.problem.network, work)
        self.network.requires_grad_(True)
        with self.problem.clock("train"):
            fit(self.network, loss, count, recipe or self.settings, work, after_step=after_step)
        self.fits += 1

    def train_on(self, images: Tensor, labels: Tensor) -> None:
        """Train on uint8 images and class numbers."""
        self.see(labels)
        self.train(len(labels), lambda rows: self.loss(images[rows], labels[rows]))

    def retrain_on(self, images: Tensor, labels: Tensor) -> None:
        """Train on everything a method remembers, from scratch or warm, like LogCL's global model.

        As there, the outputs of other classes are left out of the loss: once pushed down, they would handicap
        a warm start with new classes.
        """
        recipe = self.settings
        if not recipe.warm_start:
            self._network = None
        elif self._network is not None:
            recipe = shortened(recipe, recipe.warm_share)
        self.seen.zero_()  # a buffer may have dropped the last sample of a class
        self.see(labels)
        known, number = self.seen.nonzero().flatten(), self.seen.cumsum(0) - 1

        def loss(rows: Tensor) -> Tensor:
            scores = self.scores(images[rows])
            return cross_entropy(scores[:, known.to(scores.device)], number[labels[rows]], recipe)

        self.train(len(labels), loss, recipe=recipe)

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The most probable class of each image, among those seen."""
        if not self.seen.any():
            raise NotTrained("this method has seen no task yet; learn one first")
        # -1 and not 0: the probabilities of all classes seen may have been rounded to 0.
        allowed = np.where(self.seen.numpy(), predict_proba(self.network, x), -1.0)
        return np.asarray(allowed.argmax(axis=1), dtype=np.int64)

    def state(self) -> State:
        """The network, the classes it has seen and the number of fits."""
        known = {"seen": self.seen.clone(), "fits": torch.tensor(self.fits)}
        return known | (blobs.weights(self.network, "network") if self._network is not None else {})

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.seen, self.fits = state["seen"].clone(), int(state["fits"])
        weights = without_prefix("network.", state)
        if weights:
            self.network.load_state_dict(weights)
            self.network.eval()


class Retrained:
    """A classifier that is trained on everything a method remembers when a prediction is needed.

    Training starts from scratch or, with `classifier.warm_start`, from the previous network.
    """

    def __init__(self, problem: Problem, remembered: Callable[[], tuple[Tensor, Tensor]]) -> None:
        self.problem = problem
        self.remembered = remembered
        """Returns uint8 images and class numbers of everything the method remembers."""
        self.tasks = 0
        self._solver = Solver(problem)
        self._current = False

    def outdated(self) -> None:
        """Note that a task was learned: retrain before the next prediction."""
        self.tasks += 1
        self._current = False

    def predict(self, x: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The most probable class of each image, among those remembered."""
        if self.tasks and not self._current:
            self._solver.fits = self.tasks
            self._solver.retrain_on(*self.remembered())
            self._current = True
        return self._solver.predict(x)

    def state(self) -> State:
        """The number of tasks and, for a warm start, the network, which is not counted as memory."""
        known = {"tasks": torch.tensor(self.tasks)}
        if self.problem.settings.classifier.warm_start:
            known[f"{_UNCOUNTED}current"] = torch.tensor(self._current)
            known |= {f"{_UNCOUNTED}{name}": value for name, value in self._solver.state().items()}
        return known

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self.tasks = int(state["tasks"])
        classifier = without_prefix(_UNCOUNTED, state)
        if classifier:
            self._current = bool(classifier["current"])
            self._solver.restore(classifier)


def tensors(task: Task) -> tuple[Tensor, Tensor]:
    """Images and class numbers of a task, copied because it may be a read-only memory map."""
    return torch.from_numpy(np.array(task.x)), torch.from_numpy(np.array(task.y))


@torch.no_grad()
def in_blocks(function: Callable[[Tensor], Tensor], pixels: NDArray[np.uint8]) -> Tensor:
    """`function` of uint8 images as floats in [0, 1], in blocks of bounded size; the result is on the CPU."""
    rows = rows_at_once(pixels.shape[1:])
    # Copied, because the pixels may be a read-only memory map. No images are one empty block, for the shape.
    blocks = (torch.from_numpy(pixels[k : k + rows].copy()) for k in range(0, max(len(pixels), 1), rows))
    return torch.cat([function(to_unit(block.to(choose_device()))).cpu() for block in blocks])


def flat_weights(network: nn.Module) -> Tensor:
    """All weights in one vector, differentiable."""
    return torch.cat([value.reshape(-1) for value in network.parameters()])


def label_type(classes: int) -> torch.dtype:
    """The smallest integer type for the labels of this many classes."""
    return torch.uint8 if classes <= 256 else torch.int16 if classes <= 32_768 else torch.int32


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block, so that computing losses does not update the batch statistics."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)
