"""What the tests share: small real images, quick settings, the command line in this process."""

import os
import sys
from dataclasses import dataclass

if "PYTEST_XDIST_WORKER" in os.environ:
    # One worker a core: more threads would only wait for each other, here and in the processes of the tests.
    os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from sklearn.datasets import load_digits

# Fits are real work: no deadline for a single example, and the same examples on every run.
settings.register_profile(
    "logcl", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("logcl")

QUICK = {
    "codec.name": "autoencoder", "codec.min_steps": 0, "codec.epochs": 2,
    "classifier.min_steps": 0, "classifier.epochs": 2,
}  # fmt: skip
"""Settings for tests that need a fitted model but not a good one."""


def pytest_collection_modifyitems(items) -> None:
    """The longest tests first, so that no core waits for another at the end."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's 1,797 digits as uint8 (n, 1, 8, 8) and int64 labels."""
    data = load_digits()
    return np.rint(data.images / 16 * 255).astype(np.uint8)[:, None], data.target.astype(np.int64)


@pytest.fixture
def quick() -> dict[str, int]:
    return dict(QUICK)


@pytest.fixture(autouse=True)
def _global_seed_is_left_alone():
    """Randomness is passed down explicitly: nothing may disturb the caller's own torch state."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state()), "a test changed torch's global random state"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Every test has its own cache and finds no data sets on this machine."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("LOGCL_CACHE", str(cache))
    monkeypatch.delenv("LOGCL_DATA", raising=False)
    monkeypatch.delenv("LOGCL_MIRROR", raising=False)
    return cache


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def logcl(monkeypatch, capsys):
    """Run the command line in this process: logcl("absorb", path, ...) → exit code, stdout, stderr."""
    from logcl.cli import main

    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["logcl", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
