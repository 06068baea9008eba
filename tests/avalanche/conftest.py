"""Avalanche on a torch without CUDA, and the 8x8 digits. `digits.py` makes benchmarks of them."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from importlib.util import find_spec

import pytest
import torch
from sklearn.datasets import load_digits

if find_spec("avalanche") is None:
    collect_ignore_glob = ["test_*.py"]  # `make avalanche` runs them in an environment that has it

# torchvision's wheel registers its operators in a library that needs CUDA, and cannot be imported without
# them. Nothing here calls them: it is enough that their names are known.
OPERATORS = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.fixture(autouse=True)
def _global_seed_is_left_alone():
    """Avalanche draws from torch's global random state, so nothing is checked here."""


@pytest.fixture(scope="session")
def split():
    """scikit-learn's digits, four fifths to learn from, as float tensors (1, 8, 8) in [0, 1]."""
    from tests.avalanche.digits import Digits, Split

    data = load_digits()
    x, y = torch.tensor(data.images / 16, dtype=torch.float32)[:, None], data.target.tolist()
    return Split(Digits(x[:1438], y[:1438]), Digits(x[1438:], y[1438:]))


@pytest.fixture
def few(split):
    """The first 240 of them, for tests of what is kept rather than of what is learned."""
    from tests.avalanche.digits import Digits, Split

    return Split(Digits(split.train.images[:240], split.train.targets[:240]), split.test)
