"""The paper's local f(x; θk): a network that reads the label of a sample off its decoded image."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core.images import rows_at_once
from logcl.core.settings import Recipe
from logcl.nn import blobs, networks
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit
from logcl.nn.training import Work, fit, seeded


@torch.no_grad()
def read(labeller: nn.Module, images: Tensor) -> NDArray[np.int64]:
    """The most probable class of each uint8 image."""
    device = next(labeller.parameters()).device
    blocks = images.split(rows_at_once(images.shape[1:]))
    parts = [labeller(to_unit(block.to(device))).argmax(dim=1).cpu() for block in blocks]
    classes: NDArray[np.int64] = torch.cat(parts).numpy()
    return classes


def trained(
    spec: networks.ClassifierSpec,
    images: Tensor,
    positions: NDArray[np.int64],
    recipe: Recipe,
    work: Work,
) -> nn.Module:
    """f(x; θk), trained on the decoded images: exactly those it will be asked about."""
    device = choose_device()
    with seeded(work.generator):
        labeller = networks.classifier(spec).to(device)
    x, y = images.to(device), torch.from_numpy(positions).to(device)

    def loss(rows: Tensor) -> Tensor:
        rows = rows.to(device)
        return nn.functional.cross_entropy(labeller(to_unit(x[rows])), y[rows])

    fit(labeller, loss, len(y), recipe, work)
    blobs.round_weights(labeller, "half")
    return labeller
