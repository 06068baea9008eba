"""Experience replay: every step trains on a batch of new samples and one from a buffer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from logcl.methods.parts.solver import Batch, Incremental, tensors
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.streams import Task


class Rehearsal(Incremental):
    """Replays samples drawn uniformly from a reservoir; subclasses draw or select in other ways.

    `draw` and `offer` take their randomness from torch's global state, which the training loop seeds. They
    see the network in evaluation mode, so that computing losses does not update the batch statistics.
    """

    keeps = "budget"

    def learn(self, task: Task) -> None:
        """Train on the task and on replay; offer each sample to the buffer after its first step."""
        images, labels = tensors(task)
        offered = torch.zeros(len(labels), dtype=torch.bool)

        def loss(rows: Tensor) -> Tensor:
            x, y = images[rows], labels[rows]
            self.network.eval()
            old_x, old_y = self.draw(x, y)
            self.network.train()
            value = self.loss(torch.cat([x, old_x]), torch.cat([y, old_y]))
            first = rows[~offered[rows]]
            if len(first):
                offered[first] = True
                self.network.eval()
                self.offer(images[first], labels[first])
                self.network.train()
            return value

        self.train(labels, loss)

    def draw(self, _x: Tensor, y: Tensor) -> Batch:
        """What to replay with a batch of new samples: as many samples from the buffer."""
        rows = self.buffer.draw(len(y))
        return self.buffer.x[rows], self.buffer.y[rows]

    def offer(self, x: Tensor, y: Tensor) -> None:
        """Decide which new samples enter the buffer."""
        self.buffer.reservoir(x, y)


def weights_ahead(network: nn.Module, x: Tensor, y: Tensor, rate: float) -> dict[str, Tensor]:
    """The weights after one plain gradient step on a batch: θ - rate ∇l(x, y; θ)."""
    weights = dict(network.named_parameters())
    gradients = torch.autograd.grad(losses(network, x, y).mean(), list(weights.values()))
    return {
        name: (value - rate * gradient).detach()
        for (name, value), gradient in zip(weights.items(), gradients, strict=True)
    }


def losses(network: nn.Module, x: Tensor, y: Tensor, weights: dict[str, Tensor] | None = None) -> Tensor:
    """Cross-entropy per sample (n,), without augmentation, with the network's weights or the ones given."""
    images, labels = to_unit(x.to(choose_device())), y.to(choose_device())
    scores = network(images) if weights is None else functional_call(network, weights, (images,))
    return nn.functional.cross_entropy(scores, labels, reduction="none")
