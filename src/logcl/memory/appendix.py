"""The hyperparameters of the paper's appendix, one column a data set, as they are printed there."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Column(NamedTuple):
    """What the appendix says of one data set: its list of architectures and its table."""

    latent: int
    """Size of the autoencoder's latent space, the length of a code."""
    classifier: Literal["lenet", "resnet18"]
    classifier_batch: int
    classifier_rate: float
    classifier_epochs: int
    generator_batch: int
    warm_up_rate: float
    warm_up_epochs: int
    generator_rate: float
    generator_epochs: int = 200


COLUMNS = {
    "mnist": Column(200, "lenet", 120, 0.002, 15, 40, 0.001, 30, 0.01),
    "omniglot": Column(200, "resnet18", 40, 0.001, 10, 40, 0.0001, 50, 0.05),
    "cifar100": Column(1000, "resnet18", 128, 0.1, 65, 50, 0.001, 100, 0.005),
}
SCHEDULER_RATE = 0.99
"""Factor an epoch on the generators' learning rate."""


def column(dataset: str | None, channels: int) -> Column:
    """The column of a data set; for one that the paper does not have: grey as MNIST, colour as CIFAR-100.

    The experiment with 100 tasks has "the same hyperparameters as in the Omniglot dataset".
    """
    name = "omniglot" if dataset == "omniglot-100" else dataset
    if name not in COLUMNS:
        name = "mnist" if channels == 1 else "cifar100"
    return COLUMNS[name]
