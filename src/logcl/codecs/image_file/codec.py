"""AVIF or WebP files without their common bytes: the best library codec, for images of any size.

    image ── Pillow ── file ── shell (once for all samples) + payload ── code

Nothing is trained. A sample's bytes are copied when levels merge, so it is encoded once in its life.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal, TypeGuard, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import features
from pydantic import Field
from torch import Tensor

from logcl.codecs.base import Codec, CodecSpec, FitInput, Fitted, RateSettings, Rows
from logcl.codecs.image_file.codes import FileCodes
from logcl.codecs.image_file.containers import CONTAINERS, HIGHEST, LOWEST, Container
from logcl.codecs.rate_control import TRIALS, TRIED, Encoded, RateControl, Scale
from logcl.core.errors import BadSettings, Damaged
from logcl.core.images import squared_errors
from logcl.core.settings import ImageShape
from logcl.nn.training import Work

_BLOCK = 32  # images that are re-encoded at once
_DOUBLED_STEP = 16  # steps of quality in which AVIF's quantiser step doubles, about
_MOST_SHELLS = 64
_EFFORT = 3968  # with what every sample claims, 4096
_SCALE = Scale(LOWEST, HIGHEST, error_slope=-0.22, bytes_slope=0.11, usual=45, dear=0)

Item = TypeVar("Item")
Result = TypeVar("Result")


class ImageFileSettings(RateSettings):
    """The format and the rate."""

    name: Literal["image_file"] = "image_file"
    """Which codec."""
    format: Literal["avif", "webp"] = "avif"
    """`avif` takes a third fewer bytes, `webp` a tenth of the time."""
    speed: int = Field(6, ge=0, le=10)
    """Of the AVIF encoder: slower, lower numbers give smaller files."""

    @classmethod
    def for_images(cls, image_shape: ImageShape) -> ImageFileSettings:
        """30 dB; small images are worth a slower encoder, which takes less time than training on them."""
        channels, height, width = image_shape
        small = 3 if channels > 1 and height * width <= 1024 else 5
        return cls(psnr=30, speed=small if height * width <= 2048 else 7)

    @classmethod
    def possible(cls, image_shape: ImageShape) -> bool:
        """Whether the codec can hold images of this shape."""
        return _possible(image_shape)

    @classmethod
    def candidate(cls, image_shape: ImageShape, samples: int) -> ImageFileSettings | None:
        """Wherever Pillow can write such files."""
        del samples
        suits = _possible(image_shape) and features.check("avif")
        return cls.for_images(image_shape) if suits else None

    def describes(self, spec: CodecSpec) -> bool:
        """A memory's files are all of one format: they are never decoded to be merged."""
        return isinstance(spec, ImageFileSpec) and spec.format == self.format


class ImageFileSpec(CodecSpec):
    """What decoding needs beside the shells, and the quality of the newest samples."""

    name: Literal["image_file"] = "image_file"
    image_shape: ImageShape
    format: Literal["avif", "webp"]
    speed: int = Field(ge=0, le=10)
    quality: int = Field(ge=LOWEST, le=HIGHEST)

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.image_shape


class ImageFile(Codec):
    """The shells of all files."""

    Settings = ImageFileSettings
    Spec = ImageFileSpec
    copies_codes = True
    warm_starts = True
    spec: ImageFileSpec

    def __init__(self, spec: ImageFileSpec, shells: Sequence[bytes]) -> None:
        self.spec, self.shells = spec, tuple(shells)

    @property
    def container(self) -> Container:
        """The file format."""
        return CONTAINERS[self.spec.format]

    @classmethod
    def fit(
        cls, samples: FitInput, settings: ImageFileSettings, work: Work, starts: Sequence[Codec] = ()
    ) -> Fitted:
        """Encode new samples; those of merged levels keep their bytes."""
        shape = samples.image_shape
        if not _possible(shape):
            raise BadSettings(
                f"image files have 1 or 3 channels and sides up to 16,383, but images are "
                f"{'x'.join(map(str, shape))}; choose another one with --codec cosine"
            )
        CONTAINERS[settings.format].check_available()
        merged = [(codec, codes) for codec, codes in samples.merged if _suits(codec, settings, shape)]
        kept = len(merged) == len(samples.merged)
        images = samples.new if kept else samples.x
        alike = [codec for codec, _ in merged[::-1]]
        alike += [codec for codec in starts if _suits(codec, settings, shape)]
        start = alike[0].spec.quality if alike else None
        shells = list(alike[0].shells) if alike else []
        entries: list[bytes] = []
        for codec, codes in merged if kept else ():
            entries += codec.moved(codes, shells)
        with work.counting(cls.steps(settings, len(samples), warm=start is not None)) as made:
            spec = ImageFileSpec(
                image_shape=shape, format=settings.format, speed=settings.speed, quality=start or 0
            )
            if len(images):
                encoder = _Encoder(CONTAINERS[settings.format], settings, shells, made)
                blocks, quality = RateControl(encoder, _SCALE, settings).encode(images, start)
                new = [b""] * len(images)
                for block in blocks:
                    for row, entry in zip(block.rows, block.codes, strict=True):
                        new[row] = entry
                entries += new
                if start is None or abs(quality - start) > 1:  # levels with equal codecs store theirs once
                    spec = spec.model_copy(update={"quality": quality})
        if len(shells) > _MOST_SHELLS:
            raise Damaged(
                f"the image files of merged levels have more than {_MOST_SHELLS} different headers; absorb "
                f"what `logcl export` writes into a new memory"
            )
        every = np.arange(len(samples))
        return Fitted(cls(spec, shells), FileCodes.of(entries), every, kept and bool(samples.merged))

    def moved(self, codes: Any, shells: list[bytes]) -> list[bytes]:
        """The codes of all samples for a codec with other shells, to which those of this one are added."""
        shells += [shell for shell in self.shells if shell not in shells]
        places = [shells.index(shell) for shell in self.shells]
        entries = [codes.entry(row) for row in range(len(codes))]
        return [bytes([places[entry[0]]]) + entry[1:] for entry in entries]

    def encode(self, x: NDArray[np.uint8]) -> FileCodes:
        """Files of the quality that the newest samples have."""
        return FileCodes.of(self._encoded(x, self.spec.quality, [None] * len(x)))

    def _encoded(self, x: NDArray[np.uint8], quality: int, others: Sequence[bytes | None]) -> list[bytes]:
        """Codes of this quality, or the others where those are smaller or the file has another shell."""

        def one(pair: tuple[NDArray[np.uint8], bytes | None]) -> bytes:
            image, other = pair
            shell, payload = self.container.encode(image, quality, self.spec.speed)
            if shell not in self.shells:
                if other is None:
                    raise ValueError("this Pillow writes other files than the one that the codec is of")
                return other
            entry = bytes([self.shells.index(shell)]) + payload
            return entry if other is None or len(entry) < len(other) else other

        return parallel(one, list(zip(x, others, strict=True)))

    def decode(self, codes: FileCodes, rows: Rows) -> Tensor:
        """Images (m, C, H, W)."""
        images = torch.empty((len(rows), *self.spec.shape), dtype=torch.uint8)
        grey, view = self.spec.shape[0] == 1, images.numpy()

        def one(place: int) -> None:
            entry = codes.entry(int(rows[place]))
            try:
                view[place] = self.container.decode(self.shells[entry[0]], entry[1:], grey)
            except (ValueError, OSError, IndexError) as error:
                raise Damaged(
                    f"{codes.name}: an image does not decode ({error}); `logcl verify` says what is intact"
                ) from error

        parallel(one, range(len(rows)))
        return images

    def coarsen(self, codes: FileCodes, factor: int = 2) -> FileCodes:
        """Files of lower quality, made from the images that these decode to."""
        quality = max(self.spec.quality - round(_DOUBLED_STEP * math.log2(factor)), LOWEST)
        if quality == self.spec.quality:
            return codes
        entries: list[bytes] = []
        for start in range(0, len(codes), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(codes)))
            images = self.decode(codes, rows).numpy()
            entries += self._encoded(images, quality, [codes.entry(int(row)) for row in rows])
        return replace(FileCodes.of(entries), name=codes.name)

    def weights(self) -> dict[str, Tensor]:
        """The shells."""
        sizes = torch.tensor([len(shell) for shell in self.shells], dtype=torch.int32)
        content = np.frombuffer(b"".join(self.shells), np.uint8).copy()
        return {"shells": torch.from_numpy(content), "sizes": sizes}

    @classmethod
    def restore(cls, spec: ImageFileSpec, weights: Mapping[str, Tensor], name: str) -> ImageFile:
        """Check that the decoder will allocate no more than images of this shape take."""
        content, sizes = weights.get("shells"), weights.get("sizes")
        if (
            content is None or content.dtype != torch.uint8 or content.dim() != 1
            or sizes is None or sizes.dtype != torch.int32 or sizes.dim() != 1
            or not 1 <= len(sizes) <= _MOST_SHELLS
            or not 1 <= int(sizes.min()) <= int(sizes.max()) <= len(content)
            or int(sizes.sum()) != len(content)
        ):  # fmt: skip
            raise Damaged(f"{name} has no shells for its files; `logcl verify` says what is intact")
        shells = [part.numpy().tobytes() for part in content.split(sizes.tolist())]
        container = CONTAINERS[spec.format]
        try:
            sound = all(container.size(shell) == spec.shape[1:] for shell in shells)
            for shell in shells:
                container.wrap(shell, b"")
        except (ValueError, IndexError) as error:
            raise Damaged(f"{name}: {error}; `logcl verify` says what is intact") from error
        if not sound or spec.shape[0] not in (1, 3):
            raise Damaged(f"{name} is of images of another size; `logcl verify` says what is intact")
        return cls(spec, shells)

    def restore_codes(
        self, tensors: Mapping[str, Tensor], indices: NDArray[np.int64], level_bytes: int, name: str
    ) -> FileCodes:
        """Heads, lengths and the rest of every code."""
        del level_bytes  # every code has its own bytes
        return FileCodes.restore(tensors, len(indices), name)

    @classmethod
    def effort(cls, spec: Mapping[str, Any], image_shape: ImageShape) -> int:
        """Opening a file takes as long as decoding some thousand pixels."""
        del spec, image_shape
        return _EFFORT

    @classmethod
    def steps(cls, settings: ImageFileSettings, samples: int, *, warm: bool) -> int:
        """Images that are encoded, on trial or for good."""
        del settings, warm
        return samples + TRIALS * min(samples, TRIED)


class _Encoder:
    """Encodes images at any quality, for rate control."""

    def __init__(
        self,
        container: Container,
        settings: ImageFileSettings,
        shells: list[bytes],
        made: Callable[[int], None],
    ) -> None:
        """shells: those known, new ones are added; made: called with the number of encoded images."""
        self.container, self.settings, self.shells, self.made = container, settings, shells, made

    def __call__(self, x: NDArray[np.uint8], quality: int) -> Encoded:
        grey, measured = x.shape[1] == 1, self.settings.psnr is not None

        def one(image: NDArray[np.uint8]) -> tuple[bytes, bytes, float]:
            shell, payload = self.container.encode(image, quality, self.settings.speed)
            error = 0.0
            if measured:
                decoded = self.container.decode(shell, payload, grey)
                error = float(squared_errors(image[None], decoded[None])[0])
            return shell, payload, error

        found = parallel(one, list(x))
        self.made(len(x))
        known = self.shells
        known += [shell for shell in dict.fromkeys(s for s, _, _ in found) if shell not in known]
        entries = [bytes([known.index(shell)]) + payload for shell, payload, _ in found]
        size = sum(map(len, entries)) if measured else FileCodes.of(entries).nbytes
        return Encoded(entries, size / len(x), sum(error for _, _, error in found) / len(x))


def parallel(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Results in order; Pillow releases the interpreter's lock, so threads run side by side."""
    threads = min(torch.get_num_threads(), len(items))
    if threads <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


def _possible(shape: ImageShape) -> bool:
    channels, height, width = shape
    return channels in (1, 3) and max(height, width) <= 16383


def _suits(codec: Codec, settings: ImageFileSettings, shape: ImageShape) -> TypeGuard[ImageFile]:
    """Whether codes of this codec can stand beside new ones."""
    return isinstance(codec, ImageFile) and (codec.spec.format, codec.spec.shape) == (settings.format, shape)
