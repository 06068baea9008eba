"""What training and loading a classifier may take: bounds that the size of the memory file justifies.

Settings and descriptions come from the file, which may be forged. What a caller asks for explicitly is not
limited.
"""

from __future__ import annotations

from pathlib import Path

from logcl.core.errors import BadSettings
from logcl.core.settings import ClassifierSettings
from logcl.core.text import human_bytes
from logcl.nn.training import total_steps

# Bytes in any case, and per byte stored.
_CACHE, _CACHE_PER_BYTE = 2**24, 48  # of decoded images; a larger memory is decoded on the fly
_BATCH, _BATCH_PER_BYTE = 5 * 2**24, 16  # of the activations of a batch; a larger one is split
_IMAGE, _IMAGE_PER_BYTE = 2**28, 64  # of the activations of one image; a wider network is refused
_VISITS, _EPOCHS = 2**22, 1000  # samples that a recipe from the file may visit, or visits per sample


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


def images_at_once(activations: int, stored: int) -> int:
    """Images of a batch that may be in memory together; `stored`: bytes of the parts of the file."""
    per_image = 8 * activations  # values and gradients
    return max((_BATCH + _BATCH_PER_BYTE * stored) // per_image, 1)


def may_cache(image_bytes: int, stored: int) -> bool:
    """Whether decoded images of this size in total may be kept in memory."""
    return image_bytes <= _CACHE + _CACHE_PER_BYTE * stored
