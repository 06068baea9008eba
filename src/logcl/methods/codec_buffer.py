"""A buffer of every sample through an image codec: what a practitioner would use instead."""

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
from logcl.methods.parts.protocol import BOOKKEEPING, Method, Part, Problem, Replayed, State
from logcl.methods.parts.solver import Retrained, label_type
from logcl.streams import Task

_CALIBRATION = 256  # samples of the first task that the quality is chosen on
_WORST = 10  # the lowest quality that is worth its bytes

Codec = Literal["webp", "jpeg", "avif", "png"]


class CodecBufferOptions(Frozen):
    """Which codec, and how good."""

    codec: Codec = "webp"
    """`png` is lossless; the others have a quality."""
    quality: int = Field(50, ge=0, le=100)
    """As Pillow counts it."""
    bytes_per_sample: float | None = Field(None, gt=0)
    """If given, the quality is chosen on the first task so that there are about so many bytes for each sample
    seen. If those of quality 10 have more, only some are kept, drawn evenly."""

    @model_validator(mode="after")
    def _has_a_quality(self) -> CodecBufferOptions:
        if self.codec == "png" and self.bytes_per_sample is not None:
            raise ValueError("png is lossless: its bytes_per_sample cannot be chosen")
        return self


class Files:
    """Every sample as the bytes of one image file."""

    def __init__(self, problem: Problem, codec: Codec) -> None:
        self.codec = codec
        self.quality: int | None = None
        self.share = 1.0
        """Of the samples seen, how many are kept."""
        self.contents: list[bytes] = []
        self.labels = np.empty(0, dtype=np.int64)
        self.arrival = np.empty(0, dtype=np.int64)
        self.seen = 0
        self._channels = problem.settings.image_shape[0]
        self._label_type = label_type(len(problem.classes))

    def append(self, x: NDArray[np.uint8], y: NDArray[np.int64], rows: NDArray[np.intp]) -> None:
        """Keep these rows of a task, at the quality that was chosen."""
        assert self.quality is not None
        self.contents += (compressed(image, self.codec, self.quality) for image in x[rows])
        self.labels = np.concatenate([self.labels, y[rows]])
        self.arrival = np.concatenate([self.arrival, self.seen + rows])
        self.seen += len(y)

    def everything(self) -> tuple[Tensor, Tensor]:
        """Images as they come out of their files, and class numbers."""
        images = np.stack([decompressed(content, self._channels) for content in self.contents])
        return torch.from_numpy(images), torch.from_numpy(self.labels)

    def state(self) -> State:
        """All files in one row, their lengths, the labels, and the quality that was chosen."""
        return {
            "codec.files": torch.from_numpy(np.frombuffer(b"".join(self.contents), np.uint8).copy()),
            "codec.lengths": torch.tensor([len(content) for content in self.contents], dtype=torch.int32),
            "codec.labels": torch.from_numpy(self.labels).to(self._label_type),
            "codec.quality": torch.tensor(-1 if self.quality is None else self.quality, dtype=torch.int8),
            "codec.share": torch.tensor(self.share),
            f"{BOOKKEEPING}arrival": torch.from_numpy(self.arrival),
            f"{BOOKKEEPING}seen": torch.tensor(self.seen),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        everything = state["codec.files"].numpy().tobytes()
        ends = np.cumsum(state["codec.lengths"].numpy(), dtype=np.int64)
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        self.contents = [everything[start:end] for start, end in zip(starts, ends, strict=True)]
        self.labels = state["codec.labels"].long().numpy()
        self.quality = None if int(state["codec.quality"]) < 0 else int(state["codec.quality"])
        self.share = float(state["codec.share"])
        self.arrival = state[f"{BOOKKEEPING}arrival"].numpy().copy()
        self.seen = int(state[f"{BOOKKEEPING}seen"])


class CodecBuffer(Method):
    """Keeps all samples as image files; trains afresh on what they decode to when asked."""

    Options = CodecBufferOptions
    options: CodecBufferOptions
    keeps = "all"

    def __init__(self, problem: Problem, options: Any = None) -> None:
        super().__init__(problem, options)
        channels = problem.settings.image_shape[0]
        if channels not in (1, 3):
            raise BadSettings(f"images of {channels} channels fit no image codec; they need 1 or 3")
        if self.options.codec == "avif" and not features.check("avif"):
            raise BadSettings("this Pillow has no AVIF; install pillow 11.3 or newer, or choose webp")
        self.files = Files(problem, self.options.codec)
        self.solver: Retrained = Retrained(problem, self.files.everything)

    def learn(self, task: Task) -> None:
        """Compress each sample."""
        with self.problem.clock("absorb"):
            if self.files.quality is None:
                self.files.quality, self.files.share = self._chosen(task.x)
            rows = np.arange(len(task))
            if self.files.share < 1:
                generator = np.random.default_rng([self.problem.settings.seed, self.files.seen])
                rows = np.sort(generator.permutation(rows)[: max(round(len(rows) * self.files.share), 1)])
            self.files.append(task.x, task.y, rows)
        self.solver.outdated()

    def replayed(self) -> Replayed:
        """Every sample, decompressed: encoded once."""
        images, _ = self.files.everything()
        once = np.zeros(len(images), dtype=np.int64)
        return Replayed(images.numpy(), self.files.arrival, once, once)

    def parts(self) -> tuple[Part, ...]:
        """The files; the network is trained again."""
        return self.files, self.solver

    def _chosen(self, x: NDArray[np.uint8]) -> tuple[int, float]:
        """The best quality within the bytes asked for, on some of these images, and the share to keep."""
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


def compressed(image: NDArray[np.uint8], codec: Codec, quality: int) -> bytes:
    """One image (C, H, W) as an image file."""
    pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    content = io.BytesIO()
    choices = {"optimize": True} if codec == "png" else {"quality": quality}
    Image.fromarray(np.ascontiguousarray(pixels)).save(content, codec, **choices)
    return content.getvalue()


def decompressed(content: bytes, channels: int) -> NDArray[np.uint8]:
    """The image (C, H, W) in a file that `compressed` made; WebP and AVIF have turned grey into colours."""
    with Image.open(io.BytesIO(content)) as image:
        pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def mean_bytes(x: Iterable[NDArray[np.uint8]], codec: Codec, quality: int) -> float:
    """How long the files of these images are."""
    return float(np.mean([len(compressed(image, codec, quality)) for image in x]))
