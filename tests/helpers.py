"""Helpers that several test files share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_images
from torch import nn

from logcl.codecs import registry
from logcl.codecs.base import Codec, CodecSettings, Encoded, FitInput, Fitted
from logcl.core.features import to_bytes
from logcl.core.progress import Progress, Silent
from logcl.memory.local_model import LocalModel
from logcl.nn.backbones import Backbone
from logcl.nn.training import Work, generator_for


class CountingProgress(Silent):
    """Counts the steps reported, and keeps the totals announced."""

    def __init__(self) -> None:
        self.steps = 0
        self.totals: list[int] = []

    @contextmanager
    def track(self, description, total):
        self.totals.append(total)

        def advance(steps: int = 1, note: str = "") -> None:
            self.steps += steps

        yield advance


def smooth(count: int, shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    """Images with the statistics of photographs: amplitudes fall with frequency, channels are correlated."""
    rng = np.random.default_rng(seed)
    channels, height, width = shape
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    fall = 1 / (frequency + 1 / max(height, width)) ** 1.5

    def field(*lead: int) -> np.ndarray:
        noise = np.fft.rfft2(rng.normal(size=(*lead, height, width)))
        values = np.fft.irfft2(noise * fall, s=(height, width))
        return values / values.std()

    images = 0.45 + 0.16 * field(count, 1) + 0.04 * field(count, channels)
    return np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)


def strokes(count: int, side: int = 28, seed: int = 0) -> np.ndarray:
    """Grey images of pen strokes, white on black, with soft edges."""
    rng = np.random.default_rng(seed)
    images = []
    for _ in range(count):
        picture = Image.new("L", (4 * side, 4 * side))
        points = [tuple(point) for point in rng.uniform(0.15, 0.85, (4, 2)) * 4 * side]
        ImageDraw.Draw(picture).line(points, fill=255, width=int(rng.integers(8, 14)), joint="curve")
        images.append(np.asarray(picture.resize((side, side), Image.Resampling.BOX)))
    return np.stack(images)[:, None]


def error(x: np.ndarray, z: np.ndarray) -> float:
    """Mean squared error, pixels in [0, 1]."""
    return float(np.square((x.astype(float) - z) / 255).mean())


def psnr(x: np.ndarray, z: np.ndarray) -> float:
    """In dB."""
    return -10 * math.log10(error(x, z))


def fit_input(x: np.ndarray, groups: Sequence[int] = (), first: int = 1) -> FitInput:
    """The new samples of a level that is the only one."""
    count = len(x)
    return FitInput(x, np.arange(first, first + count), groups or [count], 0, 0)


def merge_input(*fits: Fitted, new: np.ndarray | None = None) -> FitInput:
    """The samples of levels that are merged, and new ones."""
    merged = [Encoded(fitted.codec, fitted.codes) for fitted in fits]
    x = np.empty((0, *fits[0].codec.spec.shape), np.uint8) if new is None else new
    groups = [len(part) for part in (*(codes for _, codes in merged), x) if len(part)]
    return FitInput(x, np.arange(1, sum(groups) + 1), groups, 0, 0, merged)


def fit_codec(
    x: np.ndarray | FitInput,
    settings: CodecSettings,
    starts: Sequence[Codec] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> Fitted:
    """Fit the codec that the settings belong to."""
    samples = x if isinstance(x, FitInput) else fit_input(x)
    work = Work(generator_for(seed), progress or Silent())
    return registry.find(settings.name).fit(samples, settings, work, starts)


def decoded(fitted: Fitted) -> np.ndarray:
    """All images of a fit (n, C, H, W)."""
    return fitted.codec.decode(fitted.codes, np.arange(len(fitted.codes))).numpy()


def photographs(count: int, side: int) -> np.ndarray:
    """Random crops (count, 3, side, side) of the two photographs in scikit-learn, at several scales."""
    pictures = [Image.fromarray(picture) for picture in load_sample_images().images]
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        picture = pictures[number % len(pictures)]
        size = int(rng.integers(side, 400))
        left, top = (int(rng.integers(edge - size + 1)) for edge in picture.size)
        crop = picture.resize((side, side), Image.Resampling.LANCZOS, (left, top, left + size, top + size))
        found.append(np.asarray(crop).transpose(2, 0, 1))
    return np.stack(found)


def code_bytes(codes) -> int:
    """Bytes of the tensors that are stored."""
    return sum(tensor.nbytes for tensor in codes.tensors().values())


def codecs_of(model: LocalModel) -> dict[str, Codec]:
    """What `LocalModel.from_bytes` needs besides the blob of this model."""
    blob = model.codec.to_bytes()
    return {sha256(blob).hexdigest(): model.codec} if model.codec.weights() else {}


def reread(model: LocalModel, name: str = "level") -> LocalModel:
    """The model, written and read again, weights included."""
    codecs = {
        digest: registry.from_bytes(codec.to_bytes(), name) for digest, codec in codecs_of(model).items()
    }
    return LocalModel.from_bytes(model.to_bytes(), codecs, name)


def page_of(path: Path) -> int:
    """Bytes of a page of a SQLite database, as its header says."""
    return int.from_bytes(path.read_bytes()[16:18], "big")


class TinyBackbone(nn.Module):
    """Features (n, 24) of images (n, 3, H, W): with batch normalisation, like most pretrained networks."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.last = nn.Conv2d(8, 24, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).relu()).relu().flatten(2).amax(2)


def tiny_backbone(seed: int = 0, side: int = 16) -> Backbone:
    """A backbone that takes next to no time; equal seeds give equal weights."""
    return Backbone.of(TinyBackbone(seed), (3, side, side), name="tiny")


def feature_bytes(
    count: int, values: int = 256, classes: int = 6, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Features as a rectifier leaves them, as bytes (n, 1, 1, values), and their classes (n,)."""
    rng, means = np.random.default_rng(seed), np.random.default_rng(99).normal(-0.4, 0.6, (classes, values))
    y = rng.integers(classes, size=count)
    features = np.maximum(means[y] + rng.normal(0, 0.8, (count, values)), 0)
    return to_bytes(features, 1.0)[:, None, None, :], y
