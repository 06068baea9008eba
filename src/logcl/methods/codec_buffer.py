"""A buffer with every sample as an image file: what a practitioner would do."""

from __future__ import annotations

import io
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, features
from pydantic import Field, model_validator

from logcl.core.errors import BadSettings
from logcl.core.pictures import from_picture, to_picture
from logcl.core.settings import Frozen
from logcl.methods.parts.exemplars import label_type
from logcl.methods.parts.protocol import Problem, Replayed
from logcl.methods.parts.solver import Batch, Retrained
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


class CodecBuffer(Retrained):
    """Keeps all samples as image files; decodes them to train a classifier when a prediction is needed."""

    name = "codec-buffer"
    summary = "every sample as a WebP, JPEG, AVIF or PNG file"
    Options = CodecBufferOptions
    options: CodecBufferOptions
    keeps = "all"
    kept = (*Retrained.kept, "content", "lengths", "labels", "quality", "share")
    bookkeeping = ("arrival", "offered")

    def __init__(self, problem: Problem, options: object = None) -> None:
        super().__init__(problem, options)
        self.channels = problem.settings.image_shape[0]
        if self.channels not in (1, 3):
            raise BadSettings(f"image files cannot have {self.channels} channels; use images with 1 or 3")
        if self.options.codec == "avif" and not features.check("avif"):
            raise BadSettings("this Pillow cannot write AVIF; install pillow 11.3 or newer, or choose webp")
        self.content = torch.empty(0, dtype=torch.uint8)
        """All files, one after another."""
        self.lengths = torch.empty(0, dtype=torch.int32)
        self.labels = torch.empty(0, dtype=label_type(len(problem.classes)))
        self.quality = torch.tensor(-1, dtype=torch.int8)
        """Chosen on the first task."""
        self.share = 1.0
        """Share of the samples seen that is kept."""
        self.arrival = torch.empty(0, dtype=torch.int64)
        self.offered = 0
        """Samples seen so far, kept or not."""

    def learn(self, task: Task) -> None:
        """Compress each sample."""
        with self.problem.clock("absorb"):
            if not self.tasks:
                self._choose(task.x)
            rows = np.arange(len(task))
            if self.share < 1:
                generator = np.random.default_rng([self.problem.settings.seed, self.offered])
                rows = np.sort(generator.permutation(rows)[: max(round(len(rows) * self.share), 1)])
            files = [compressed(image, self.options.codec, int(self.quality)) for image in task.x[rows]]
            new = {
                "content": np.frombuffer(b"".join(files), np.uint8),
                "lengths": [len(file) for file in files],
                "labels": task.y[rows],
                "arrival": self.offered + rows,
            }
            for name, values in new.items():
                old = getattr(self, name)
                setattr(self, name, torch.cat([old, torch.tensor(values, dtype=old.dtype)]))
            self.offered += len(task)
        self.outdated()

    def everything(self) -> Batch:
        """Decoded images and class numbers."""
        files = self.content.split(self.lengths.tolist())
        images = np.stack([decompressed(file.numpy().tobytes(), self.channels) for file in files])
        return torch.from_numpy(images), self.labels.long()

    def replayed(self) -> Replayed:
        """Every sample kept, decoded; none is ever encoded twice."""
        once = np.zeros(len(self.labels), dtype=np.int64)
        return Replayed(self.everything()[0].numpy(), self.arrival.numpy(), once, once)

    def _choose(self, x: NDArray[np.uint8]) -> None:
        """The highest quality within `bytes_per_sample` on some of these images, and the share to keep."""
        wanted, low, high = self.options.bytes_per_sample, _WORST, 100
        if wanted is None:
            self.quality.fill_(self.options.quality)
            return
        some = x[:: max(len(x) // _CALIBRATION, 1)]

        def mean_bytes(quality: int) -> float:
            return float(np.mean([len(compressed(image, self.options.codec, quality)) for image in some]))

        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if mean_bytes(middle) <= wanted else (low, middle - 1)
        self.quality.fill_(low)
        self.share = min(wanted / mean_bytes(low), 1.0)


def compressed(image: NDArray[np.uint8], codec: Codec, quality: int) -> bytes:
    """One image (C, H, W) as an image file."""
    content = io.BytesIO()
    choices: dict[str, Any] = {"optimize": True} if codec == "png" else {"quality": quality}
    to_picture(image).save(content, codec, **choices)
    return content.getvalue()


def decompressed(content: bytes, channels: int) -> NDArray[np.uint8]:
    """The image (C, H, W) in a file made by `compressed`; WebP and AVIF turn grey into RGB."""
    with Image.open(io.BytesIO(content)) as image:
        return from_picture(image.convert("L" if channels == 1 else "RGB"))
