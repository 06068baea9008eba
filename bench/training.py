"""Training a new classifier, as several benches do."""

from __future__ import annotations

from typing import Any

from torch import nn

from logcl.core.settings import ClassifierSettings
from logcl.nn.classification import new_network, train_on
from logcl.nn.networks import ClassifierSpec
from logcl.nn.training import Work


def train_network(
    spec: ClassifierSpec, fetch: Any, count: int, settings: ClassifierSettings, work: Work
) -> nn.Module:
    """`fetch` gives images and labels for rows of 0 to count - 1."""
    network = new_network(spec, work)
    train_on(network, fetch, count, settings, work)
    return network
