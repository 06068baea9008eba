"""The images of an Avalanche data set as the uint8 pixels of a memory, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from logcl.core.errors import BadInput
from logcl.core.inputs import to_uint8
from logcl.core.settings import ImageShape

Normalisation = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation per channel."""

_ROUNDING = 1e-3  # how far undoing a normalisation may leave [0, 1]
_GREY, _COLOUR = ("1", "L"), ("RGB", "RGBA", "RGBX", "P", "LA", "PA", "CMYK", "YCbCr")


@dataclass(frozen=True)
class ImageFormat:
    """The type and layout of the images of a data set, before transforms."""

    kind: Literal["PIL", "tensor", "array"]
    dtype: Any
    """The mode of a PIL image, or the dtype."""
    channels: Literal["none", "first", "last"]
    image_shape: ImageShape | None
    """(channels, height, width) that PIL images are converted to; None if all have the same size."""
    normalised: Normalisation | None
    """What the data set itself normalises its images with."""

    @staticmethod
    def of(image: Any, image_shape: ImageShape | None, normalised: Normalisation | None) -> ImageFormat:
        """The format of one image."""
        if isinstance(image, Image.Image):
            grey = image.mode in _GREY if image_shape is None else image_shape[0] == 1
            return ImageFormat(
                "PIL", "L" if grey else "RGB", "none" if grey else "last", image_shape, normalised
            )
        if not isinstance(image, (Tensor, np.ndarray)) or image.ndim not in (2, 3):
            raise BadInput(
                f"samples are {type(image).__name__} of shape {tuple(np.shape(image))}; give PIL images, or "
                f"tensors or arrays of two or three dimensions"
            )
        # Photographs in arrays usually have their channels last.
        last = isinstance(image, np.ndarray) and image.shape[-1] <= 4
        return ImageFormat(
            "tensor" if isinstance(image, Tensor) else "array", image.dtype,
            "none" if image.ndim == 2 else "last" if last else "first", image_shape, normalised,
        )  # fmt: skip

    def to_pixels(self, image: Any) -> NDArray[np.uint8]:
        """An image of this format as uint8 (C, H, W)."""
        array = self._to_array(image)
        if self.normalised is not None:
            mean, deviation = self._mean_and_deviation()
            if len(mean) not in (1, len(array)):
                raise BadInput(
                    f"normalised has {len(mean)} channels, but images have {len(array)}; give one mean and "
                    f"deviation per channel"
                )
            array = array * deviation + mean
            array = array.clip(0, 1) if array.min() > -_ROUNDING and array.max() < 1 + _ROUNDING else array
        if array.dtype.kind == "f" and (array.min() < 0 or array.max() > 1):
            raise BadInput(
                f"an image of the data set has values from {array.min():g} to {array.max():g}, outside of "
                f"[0, 1]; normalise in the benchmark's transforms, or give normalised=(mean, deviation)"
            )
        return to_uint8(array)

    def from_pixels(self, pixels: NDArray[np.uint8]) -> Any:
        """uint8 pixels (C, H, W) as an image of this format."""
        values: NDArray[Any] = pixels
        if self.normalised is not None:
            mean, deviation = self._mean_and_deviation()
            values = (pixels / np.float32(255) - mean) / deviation
        elif self.kind != "PIL" and self._is_float():
            values = pixels / np.float32(255)
        if self.channels != "first":
            values = values[0] if self.channels == "none" else values.transpose(1, 2, 0)
        values = np.ascontiguousarray(values)
        if self.kind == "PIL":
            return Image.fromarray(values)
        return torch.from_numpy(values).to(self.dtype) if self.kind == "tensor" else values.astype(self.dtype)

    def _to_array(self, image: Any) -> NDArray[Any]:
        """(C, H, W), with the values of the image."""
        if isinstance(image, Image.Image):
            if image.mode not in _GREY and (self.dtype == "L" or image.mode not in _COLOUR):
                raise BadInput(
                    f"a PIL image has mode {image.mode}, but {self.dtype} is expected; convert it, or give "
                    f"image_shape=(3, height, width) if only some images are grey"
                )
            image = image.convert(self.dtype)
            if self.image_shape is not None:
                _, height, width = self.image_shape
                image = image.resize((width, height), Image.Resampling.LANCZOS)
        array = image.numpy(force=True) if isinstance(image, Tensor) else np.asarray(image)
        if self.channels == "none":
            return array[None]
        return array.transpose(2, 0, 1) if self.channels == "last" else array

    def _mean_and_deviation(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Each (C, 1, 1)."""
        assert self.normalised is not None
        mean, deviation = (np.asarray(values, np.float32).reshape(-1, 1, 1) for values in self.normalised)
        return mean, deviation

    def _is_float(self) -> bool:
        if isinstance(self.dtype, torch.dtype):
            return self.dtype.is_floating_point
        return np.dtype(self.dtype).kind not in "iu"
