"""Avalanche benchmarks of the 8x8 digits, and a strategy to learn them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.scenarios.supervised import class_incremental_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.training.supervised import Naive
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

QUICK = {"codec.name": "autoencoder", "codec.min_steps": 60, "codec.epochs": 2}
"""Settings for tests that need a fitted model but not a good one."""
FAIR = {"codec.name": "autoencoder", "codec.min_steps": 250, "codec.epochs": 8}
"""Settings for tests that check accuracy after replay."""


class Digits(Dataset):
    """Images of any type, with the attribute that Avalanche expects."""

    def __init__(self, images: Any, targets: list[int]) -> None:
        self.images, self.targets = images, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position: int) -> tuple[Any, int]:
        return self.images[position], self.targets[position]


@dataclass(frozen=True)
class Split:
    train: Digits
    test: Digits

    def with_task_labels(self, experiences: int = 5, **options: Any) -> Any:
        """(x, y, t), where t is 0 for all."""
        options = {"fixed_class_order": list(range(10)), "task_labels": False, **options}
        return nc_benchmark(self.train, self.test, experiences, **options)

    def without_task_labels(self, experiences: int = 5) -> Any:
        """(x, y)."""
        data = {"train": as_classification_dataset(self.train), "test": as_classification_dataset(self.test)}
        return class_incremental_benchmark(data, num_experiences=experiences, class_order=list(range(10)))

    def task_incremental(self, experiences: int = 5) -> Any:
        """(x, y, t), where t is the index of the experience and each has the classes 0 and 1."""
        return self.with_task_labels(experiences, task_labels=True, class_ids_from_zero_in_each_exp=True)


def network(outputs: int = 10) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, outputs))


def strategy(plugins: list[Any], kind: Callable[..., Any] = Naive, model: nn.Module | None = None, **options):
    torch.manual_seed(0)
    model = model or network()
    options = {"train_mb_size": 32, "train_epochs": 10, "eval_mb_size": 512, "evaluator": None, **options}
    optimizer = torch.optim.Adam(model.parameters(), 4e-3)
    return kind(model=model, optimizer=optimizer, plugins=plugins, **options)


def accuracy(model: nn.Module, data: Digits) -> float:
    model.eval()
    with torch.no_grad():
        predicted = model(torch.stack(list(data.images))).argmax(dim=1)
    return float((predicted == torch.tensor(data.targets)).float().mean())


def minibatch(data: Any) -> list[Tensor]:
    """All samples of a data set in one minibatch."""
    return next(iter(DataLoader(data, batch_size=len(data), collate_fn=data.collate_fn)))
