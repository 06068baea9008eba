"""A buffer with every sample as an image file: what a practitioner would do."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, features
from pydantic import Field, model_validator
from torch import Tensor

from logcl.core.errors import BadSettings
from logcl.core.settings import Frozen
from logcl.methods.parts.protocol import BOOKKEEPING, Method, Problem, Replayed, State
from logcl.methods.parts.solver import Retrained, label_type
from logcl.streams import Task

_CALIBRATION = 256  # samples of the first task on which the quality is chosen
_WORST = 10  # below this quality, fewer samples are better than worse ones

Codec = Literal["webp", "jpeg", "avif", "png"]


class CodecBufferOptions(Frozen):
    """The codec and its quality."""

    codec: Codec = "webp"
    """`png` is lossless; the others have a quality."""
    quality: int = Field(50, ge=0, le=100)
    """Quality on Pillow's scale."""
    bytes_per_sample: float | None = Field(None, gt=0)
    """If given, the quality is chosen on the first task to take at most this many bytes per sample seen.
    If files of quality 10 are larger, only a random share of the samples is kept."""

    @model_validator(mode="after")
    def _has_a_quality(self) -> CodecBufferOptions:
        if self.codec == "png" and self.bytes_per_sample is not None:
            raise ValueError("png is lossless, so bytes_per_sample cannot be met; choose another codec")
        return self


class CodecBuffer(Method):
    """Keeps all samples as image files; decodes them to train a classifier when a prediction is needed."""

    name = "codec-buffer"
    summary = "every sample as a WebP, JPEG, AVIF or PNG file"
    Options = CodecBufferOptions
    options: CodecBufferOptions
    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        self.channels = problem.settings.image_shape[0]
        if self.channels not in (1, 3):
            raise BadSettings(f"image files cannot have {self.channels} channels; use images with 1 or 3")
        if self.options.codec == "avif" and not features.check("avif"):
            raise BadSettings("this Pillow cannot write AVIF; install pillow 11.3 or newer, or choose webp")
        self.solver: Retrained = Retrained(problem, self.everything)
        self.quality: int | None = None
        self.share = 1.0
        """Share of the samples seen that is kept."""
        self.files: list[bytes] = []
        self.labels = np.empty(0, dtype=np.int64)
        self.arrival = np.empty(0, dtype=np.int64)
        self.seen = 0

    def learn(self, task: Task) -> None:
        """Compress each sample."""
        with self.problem.clock("absorb"):
            if self.quality is None:
                self.quality, self.share = self._chosen(task.x)
            rows = np.arange(len(task))
            if self.share < 1:
                generator = np.random.default_rng([self.problem.settings.seed, self.seen])
                rows = np.sort(generator.permutation(rows)[: max(round(len(rows) * self.share), 1)])
            self.files += [compressed(image, self.options.codec, self.quality) for image in task.x[rows]]
            self.labels = np.concatenate([self.labels, task.y[rows]])
            self.arrival = np.concatenate([self.arrival, self.seen + rows])
            self.seen += len(task)
        self.solver.outdated()

    def everything(self) -> tuple[Tensor, Tensor]:
        """Decoded images and class numbers."""
        images = np.stack([decompressed(file, self.channels) for file in self.files])
        return torch.from_numpy(images), torch.from_numpy(self.labels)

    def replayed(self) -> Replayed:
        """Every sample kept, decoded; none is ever encoded twice."""
        once = np.zeros(len(self.files), dtype=np.int64)
        return Replayed(self.everything()[0].numpy(), self.arrival, once, once)

    def _chosen(self, x: NDArray[np.uint8]) -> tuple[int, float]:
        """The highest quality within `bytes_per_sample` on some of these images, and the share to keep."""
        wanted = self.options.bytes_per_sample
        if wanted is None:
            return self.options.quality, 1.0
        some = x[:: max(len(x) // _CALIBRATION, 1)]
        low, high = _WORST, 100
        while low < high:
            middle = (low + high + 1) // 2
            fits = mean_bytes(some, self.options.codec, middle) <= wanted
            low, high = (middle, high) if fits else (low, middle - 1)
        return low, min(wanted / mean_bytes(some, self.options.codec, low), 1.0)

    def state(self) -> State:
        """The concatenated files, their lengths, the labels, the quality and the share."""
        label = label_type(len(self.problem.classes))
        return super().state() | {
            "codec.files": torch.from_numpy(np.frombuffer(b"".join(self.files), np.uint8).copy()),
            "codec.lengths": torch.tensor([len(file) for file in self.files], dtype=torch.int32),
            "codec.labels": torch.from_numpy(self.labels).to(label),
            "codec.quality": torch.tensor(-1 if self.quality is None else self.quality, dtype=torch.int8),
            "codec.share": torch.tensor(self.share),
            f"{BOOKKEEPING}arrival": torch.from_numpy(self.arrival),
            f"{BOOKKEEPING}seen": torch.tensor(self.seen),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        super().restore(state)
        files = io.BytesIO(state["codec.files"].numpy().tobytes())
        self.files = [files.read(length) for length in state["codec.lengths"].tolist()]
        self.labels = state["codec.labels"].long().numpy()
        self.quality = None if int(state["codec.quality"]) < 0 else int(state["codec.quality"])
        self.share = float(state["codec.share"])
        self.arrival = state[f"{BOOKKEEPING}arrival"].numpy().copy()
        self.seen = int(state[f"{BOOKKEEPING}seen"])


def compressed(image: NDArray[np.uint8], codec: Codec, quality: int) -> bytes:
    """One image (C, H, W) as an image file."""
    pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    content = io.BytesIO()
    choices = {"optimize": True} if codec == "png" else {"quality": quality}
    Image.fromarray(np.ascontiguousarray(pixels)).save(content, codec, **choices)
    return content.getvalue()


def decompressed(content: bytes, channels: int) -> NDArray[np.uint8]:
    """The image (C, H, W) in a file made by `compressed`; WebP and AVIF turn grey into RGB."""
    with Image.open(io.BytesIO(content)) as image:
        pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def mean_bytes(x: Iterable[NDArray[np.uint8]], codec: Codec, quality: int) -> float:
    """Mean length of the files of these images."""
    return float(np.mean([len(compressed(image, codec, quality)) for image in x]))
