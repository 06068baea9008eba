"""User input, validated and converted: images to uint8 pixels, labels to all integers or all strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, FailFast, Field

from logcl.core.errors import BadInput
from logcl.core.settings import ImageFit, ImageShape

LONGEST_LABEL = 1000
"""Characters. In a numpy array every string takes as much room as the longest one."""

Label = Annotated[int, Field(ge=-(2**63), lt=2**63)] | Annotated[str, Field(max_length=LONGEST_LABEL)]


def is_text(value: str) -> bool:
    """No null characters, which numpy strips, and no lone surrogates, which UTF-8 cannot encode."""
    return "\0" not in value and value == value.encode(errors="replace").decode()


def distinct(labels: tuple[Label, ...]) -> tuple[Label, ...]:
    """Return the labels; `ValueError` unless they are distinct and all integers or all strings."""
    if len({type(label) for label in labels}) > 1:
        raise ValueError("integers and strings are mixed")
    if len(set(labels)) < len(labels):
        raise ValueError("a label occurs twice")
    if not all(is_text(label) for label in labels if isinstance(label, str)):
        raise ValueError("a label is not plain text")
    return labels


Labels = Annotated[tuple[Label, ...], FailFast(), AfterValidator(distinct)]
"""The classes in a memory file: distinct, all integers or all strings."""


def as_pixels(images: Any, image_shape: ImageShape, fit: ImageFit = "crop") -> NDArray[np.uint8]:
    """Images as (n, C, H, W) uint8.

    Accepts arrays and tensors, or lists of them, of integers in 0 to 255 or floats in [0, 1], with shape
    (n, C, H, W), else (n, H, W, C), or (n, H, W) if there is one channel; and lists of PIL images of any mode
    and size, which alone are resized, as `fit` says.
    """
    channels, height, width = shape = tuple(image_shape)
    if (pictures := as_pictures(images)) is not None:
        from logcl.core.pictures import pixels_of

        pixels = np.empty((len(pictures), *shape), np.uint8)
        for number, picture in enumerate(pictures):
            pixels[number] = pixels_of(picture, (channels, height, width), fit, f"image {number}")
        return pixels
    array = as_array(images)
    if array.ndim == 3 and channels == 1:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[1:] != shape and array.shape[1:] == (height, width, channels):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1:] != shape:
        also = f" or (n, {height}, {width})" if channels == 1 else f" or (n, {height}, {width}, {channels})"
        raise BadInput(
            f"images have shape {array.shape}; this memory takes (n, {channels}, {height}, {width}){also}, "
            f"and PIL images of any size"
        )
    return np.ascontiguousarray(to_uint8(array))


def as_pictures(images: Any) -> list[Any] | None:
    """The PIL images of a list, tuple or array, or a single one as a list; None for other images."""
    from PIL.Image import Image  # a command that reads no images does not need it

    if isinstance(images, Image):
        return [images]
    given = list(images) if isinstance(images, (list, tuple)) or _is_objects(images) else []
    if not any(isinstance(image, Image) for image in given):
        return None
    for number, image in enumerate(given):
        if not isinstance(image, Image):
            kind = type(image).__name__
            raise BadInput(
                f"image {number} is of type {kind}, others are PIL images; pass one kind of images"
            )
    return given


def channels_of(images: Any, height: int, width: int) -> int:
    """Channels of images of this size: 1 if all are grey. Of images of another size, which are refused, 3."""
    if (pictures := as_pictures(images)) is not None:
        from logcl.core.pictures import is_grey

        return 1 if all(map(is_grey, pictures)) else 3
    shape = as_array(images).shape
    if len(shape) == 3:
        return 1
    if len(shape) != 4:
        return 3
    if shape[2:] == (height, width):
        return int(shape[1])
    return int(shape[3]) if shape[1:3] == (height, width) else 3


def _is_objects(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1


def to_uint8(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Pixel values of any shape, integers in 0 to 255 or floats in [0, 1], as uint8."""
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "fiu":
        raise BadInput(f"images of type {array.dtype} are not supported; use uint8 or floats in [0, 1]")
    is_float = array.dtype.kind == "f"
    if is_float and not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))[0]
        raise BadInput(
            f"image {bad[0]} has a NaN or infinite pixel at {tuple(map(int, bad[1:]))}; remove that image"
        )
    low, high = (array.min(), array.max()) if array.size else (0, 0)
    if low < 0 or high > (1 if is_float else 255):
        allowed = "float images must lie in [0, 1]" if is_float else "integer images must lie in 0 to 255"
        span = " to ".join(str(value).removesuffix(".0") for value in (low, high))
        raise BadInput(f"{allowed}, but these range from {span}; clip or scale them first")
    return (np.rint(array * 255) if is_float else array).astype(np.uint8)


def as_labels(labels: Any, count: int) -> NDArray[Any]:
    """Labels of `count` images as an array (count,) of int64 or of strings."""
    # As objects, because numpy would silently turn a mix of numbers and strings into strings.
    array = np.array(labels, dtype=object) if isinstance(labels, (list, tuple)) else as_array(labels)
    if array.ndim != 1:
        raise BadInput(f"labels have shape {array.shape}; pass one label per sample, shape (n,)")
    if len(array) != count:
        raise BadInput(f"there are {count} images but {len(array)} labels; pass one label per image")
    if array.dtype.kind == "O":
        array = _plain(array.tolist())
    if array.dtype.kind in "iub":
        if array.dtype.kind == "u" and len(array) and int(array.max()) >= 2**63:
            raise BadInput(f"the label {int(array.max())} is too large; integer labels must fit 64 bits")
        return array.astype(np.int64)
    if array.dtype.kind == "U":
        return array
    raise BadInput(f"labels of type {array.dtype} are not supported; use integers or strings, not both")


def _plain(values: list[Any]) -> NDArray[Any]:
    """Python objects, e.g. from a list or pandas, as one array of integers or of strings."""
    if all(isinstance(value, str) for value in values):
        strange = next((value for value in values if not is_text(value)), None)
        if strange is not None:
            raise BadInput(f"the label {strange!r} is not plain text; rename it")
        return np.array(values, dtype=np.str_)
    if all(isinstance(value, (int, np.integer)) for value in values):
        large = next((value for value in values if not -(2**63) <= int(value) < 2**63), None)
        if large is not None:
            raise BadInput(f"the label {large} is too large; integer labels must fit 64 bits")
        return np.array(values, dtype=np.int64)
    kinds = " and ".join(sorted({type(value).__name__ for value in values}))
    raise BadInput(f"labels of type {kinds} are not supported; use integers or strings, not both")


def number_classes(
    labels: NDArray[Any], known: Sequence[Label]
) -> tuple[NDArray[np.int64], tuple[Label, ...]]:
    """Class numbers of the labels, and all classes: the known ones, then new ones in order of appearance."""
    kind = {"U": "strings", "i": "integers"}[labels.dtype.kind]
    was = {str: "strings", int: "integers"}[type(known[0])] if known else kind
    if was != kind:
        raise BadInput(f"the labels of this memory are {was}, but these are {kind}; use one kind of label")
    values, first, positions = np.unique(labels, return_index=True, return_inverse=True)
    numbers: dict[Label, int] = {label: number for number, label in enumerate(known)}
    for value in values[np.argsort(first)].tolist():
        if isinstance(value, str) and not is_text(value):
            raise BadInput(f"the label {value!r} is not plain text; rename it")
        if isinstance(value, str) and len(value) > LONGEST_LABEL:
            raise BadInput(f"the label {value[:20]}… is longer than {LONGEST_LABEL} characters; shorten it")
        numbers.setdefault(value, len(numbers))
    of_value = np.array([numbers[value] for value in values.tolist()], dtype=np.int64)
    return of_value[positions], tuple(numbers)


def as_array(values: Any) -> NDArray[Any]:
    """Any array, tensor or nested list as an array; refuses what is not rectangular."""
    if hasattr(values, "detach"):  # a tensor; checked without importing torch
        try:
            values = _from_tensor(values)
        except (TypeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:100]
            raise BadInput(f"a tensor cannot be read ({reason}); pass a dense array") from error
    if np.ma.is_masked(values):
        raise BadInput("some values of an array are masked; fill or remove them and pass a dense array")
    try:
        if isinstance(values, (list, tuple)) and any(hasattr(value, "detach") for value in values):
            values = [_from_tensor(value) if hasattr(value, "detach") else value for value in values]
        return np.asarray(values)
    except ValueError as error:
        raise BadInput(
            f"images and labels must be rectangular arrays ({error}); make all images the same size"
        ) from error


def _from_tensor(values: Any) -> Any:
    values = values.detach().cpu()
    try:
        return values.numpy()
    except TypeError:  # a type that numpy does not have, e.g. bfloat16
        return values.float().numpy()
