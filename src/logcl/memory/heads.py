"""The head of a memory of features: a small network, or a linear layer where that is better."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch

from logcl.core.settings import ClassifierSettings
from logcl.memory.featured import seen
from logcl.memory.snapshot import Snapshot
from logcl.nn import networks
from logcl.nn.classification import new_network, predict_classes, train_on
from logcl.nn.training import Work, shortened

_HEADS: tuple[Literal["hidden", "linear"], ...] = ("hidden", "linear")
_HELD_OUT, _SAMPLES, _FEWEST = 0.25, 8192, 64


def decided(now: Snapshot, settings: ClassifierSettings, work: Work) -> ClassifierSettings:
    """The settings with a network in place of `head`; others as they are.

    Both are trained on three quarters of the samples, or of some thousands, and evaluated on the rest. The
    linear layer has to be better by more than chance: on few samples it seems better half of the time.
    """
    if settings.network != "head":
        return settings
    some = now.live[np.random.default_rng(now.n).permutation(now.n)[:_SAMPLES]]
    if len(some) < _FEWEST:
        return settings.model_copy(update={"network": "hidden"})
    x, y = now.fetch(some)
    x = seen(x, now.settings.backbone)
    labels, held_out = torch.from_numpy(y), round(_HELD_OUT * len(some))
    right = []
    for network in _HEADS:
        recipe = shortened(settings.model_copy(update={"network": network}), 0.5)
        spec = networks.ClassifierSpec(
            network=network, width=settings.width, image_shape=(1, 1, x.shape[3]),
            classes=len(now.classes),
        )  # fmt: skip
        part = work.part(f"trying {network}")
        head = new_network(spec, part)
        train_on(head, lambda rows: (x[rows], labels[rows]), len(some) - held_out, recipe, part)
        right.append(predict_classes(head, x[-held_out:].numpy()) == y[-held_out:])
    hidden, linear = right
    by, differ = int(linear.sum()) - int(hidden.sum()), int((linear != hidden).sum())
    return settings.model_copy(update={"network": "linear" if by > math.sqrt(differ) else "hidden"})
