"""Image files to read. Tests of real data share a cache, so that each data set is decoded once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

REAL_DATA = os.environ.get("LOGCL_DATA")


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("shared-cache")


@pytest.fixture
def real_data(own_cache, shared_cache, monkeypatch):
    if not REAL_DATA or not Path(REAL_DATA).is_dir():
        pytest.skip("LOGCL_DATA names no folder with the real data sets")
    monkeypatch.setenv("LOGCL_CACHE", str(shared_cache))
    monkeypatch.setenv("LOGCL_DATA", REAL_DATA)
    return Path(REAL_DATA)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def make_images(rng):
    """Write `count` random images into a folder, numbered from 0."""

    def make(folder: Path, count: int, mode: str = "RGB", size: tuple[int, int] = (8, 6)) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        width, height = size
        for k in range(count):
            if mode == "I;16":
                image = Image.fromarray(rng.integers(0, 65536, (height, width), dtype=np.uint16))
            else:
                pixels = rng.integers(0, 256, (height, width, 4), dtype=np.uint8)
                image = (
                    Image.fromarray(pixels, "RGBA") if mode == "RGBA" else Image.fromarray(pixels[..., :3])
                )
                image = image.convert(mode)
            image.save(folder / f"{k}.png")
        return folder

    return make
