"""Avalanche with a torch without CUDA, and the 8x8 digits; `digits.py` turns them into benchmarks."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from importlib.util import find_spec

import pytest
import torch
from sklearn.datasets import load_digits

if find_spec("avalanche") is None:
    collect_ignore_glob = ["test_*.py"]  # `make avalanche` runs them in an environment that has it

# torchvision registers its operators in a library that needs CUDA, and importing it fails without them. The
# tests call none of them, so declaring their names is enough.
OPERATORS = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.fixture(autouse=True)
def _global_seed_is_left_alone():
    """Not checked here: Avalanche draws from torch's global random state."""


@pytest.fixture(scope="session")
def split():
    """scikit-learn's digits, four fifths for training, as float tensors (1, 8, 8) in [0, 1]."""
    from tests.avalanche.digits import Digits, Split

    data = load_digits()
    x, y = torch.tensor(data.images / 16, dtype=torch.float32)[:, None], data.target.tolist()
    return Split(Digits(x[:1438], y[:1438]), Digits(x[1438:], y[1438:]))


@pytest.fixture
def few(split):
    """Only 240 training samples, for tests that do not check accuracy."""
    from tests.avalanche.digits import Digits, Split

    return Split(Digits(split.train.images[:240], split.train.targets[:240]), split.test)
