"""What training and loading a classifier may take: bounds that the size of the memory file justifies.

Settings and descriptions come from the file, which may be forged. What a caller asks for explicitly is not
limited.
"""

from __future__ import annotations

import math
from pathlib import Path

from logcl.core.errors import BadSettings
from logcl.core.settings import ClassifierSettings
from logcl.core.text import human_bytes
from logcl.nn import networks
from logcl.nn.training import total_steps

# Bytes in any case, and per byte stored.
_TRAINING, _TRAINING_PER_BYTE = 300_000_000, 64  # in all; a network that needs more is refused
_CACHE, _CACHE_PER_BYTE = 2**24, 48  # of decoded images; a larger memory is decoded on the fly
_BATCH, _BATCH_PER_BYTE = 5 * 2**24, 16  # of the activations of a batch; a larger one is split
_IMAGE, _IMAGE_PER_BYTE = 2**28, 64  # of the activations of one image in `predict`
_VISITS, _EPOCHS = 2**22, 1000  # samples that a recipe from the file may visit, or visits per sample
# What training takes: for any network, and per weight, of which there are a gradient, two moments and copies.
_STEP, _PER_WEIGHT = 80_000_000, 28
_PER_VALUE = 32  # and per value of an image, of which there are several copies while it is augmented


def check_network(spec: networks.ClassifierSpec, path: Path) -> None:
    """Refuse to train a network that takes more memory than the size of the file justifies."""
    needed = _STEP + _per_image(spec) + _PER_WEIGHT * networks.weight_count(spec)
    if needed > _TRAINING + _TRAINING_PER_BYTE * path.stat().st_size:
        raise BadSettings(
            f"{path}: training its classifier takes {human_bytes(needed)} of memory, more than a file "
            f"of this size justifies; train the narrowest with `logcl train --set classifier.width=1`, or "
            f"this one with `--set classifier.width={spec.width}`"
        )


def check_width(values: int, path: Path) -> None:
    """Refuse a network with too many activations for one image."""
    if 4 * values > _IMAGE + _IMAGE_PER_BYTE * path.stat().st_size:
        raise BadSettings(
            f"{path}: its classifier takes {human_bytes(4 * values)} for one image, more than a file "
            f"of this size justifies; train a narrower one with `logcl train --set classifier.width=1`"
        )


def check_steps(settings: ClassifierSettings, samples: int, path: Path) -> None:
    """Refuse a recipe with too many steps for the number of samples."""
    visits = total_steps(settings, samples) * min(settings.batch_size, samples)
    if visits > max(_VISITS, _EPOCHS * samples):
        raise BadSettings(
            f"{path}: its settings ask for {visits / samples:,.0f} epochs of {samples:,} samples; "
            f"choose with `logcl train --set classifier.epochs=10 --set classifier.min_steps=0`"
        )


def room(spec: networks.ClassifierSpec | None, stored: int) -> tuple[int | None, int]:
    """Images of a batch that are in memory together (None: all), and bytes left for decoded images.

    spec: None if the caller chose the network; stored: bytes of the parts of the file.
    """
    cache = _CACHE + _CACHE_PER_BYTE * stored
    if spec is None:
        return None, cache
    left = _TRAINING + _TRAINING_PER_BYTE * stored - _STEP - _PER_WEIGHT * networks.weight_count(spec)
    at_once = max(min(_BATCH + _BATCH_PER_BYTE * stored, left) // _per_image(spec), 1)
    return at_once, min(cache, left - at_once * _per_image(spec))


def _per_image(spec: networks.ClassifierSpec) -> int:
    """Bytes that training takes for one image: augmentation, activations and their gradients."""
    return 8 * spec.activations + _PER_VALUE * math.prod(spec.image_shape)
