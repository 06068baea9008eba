"""A frozen network, and the features that it computes."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from logcl.core import features as stored
from logcl.core.errors import BadInput, Damaged
from logcl.core.progress import Progress, Silent
from logcl.core.settings import BackboneSpec, ImageShape
from logcl.core.text import printable
from logcl.nn.backbones.weights import digest
from logcl.nn.device import choose_device
from logcl.nn.images import to_unit

_BATCH, _VALUES = 16, 2**22  # images at once, more are slower on a CPU; values in all of them at most


class Backbone:
    """A frozen network. Use `load`, `matching` or `Backbone.of`."""

    def __init__(self, spec: BackboneSpec, network: nn.Module) -> None:
        self.spec, self.network = spec, network

    @staticmethod
    def of(
        network: nn.Module,
        image_shape: ImageShape,
        *,
        name: str = "own",
        mean: tuple[float, ...] = (0.485, 0.456, 0.406),
        std: tuple[float, ...] = (0.229, 0.224, 0.225),
    ) -> Backbone:
        """A network of your own that maps normalised images (n, C, H, W) to features (n, D).

        It is frozen, in evaluation mode. The same network has to be given whenever the memory is opened.
        """
        network = frozen(network)
        about: dict[str, Any] = {
            "name": name, "weights": digest(network), "image_shape": image_shape, "mean": mean, "std": std,
        }  # fmt: skip
        found = Backbone(BackboneSpec(**about, features=2, scale=1), network)._computed(_photographs())
        if found.ndim != 2 or found.shape[1] < 2 or not np.isfinite(found).all():
            raise BadInput(
                f"the backbone {name} gives {found.shape} for {len(found)} images; it must give finite "
                f"features, (images, features)"
            )
        # A power of two, so that rounding differences between machines do not change it.
        size = 2.0 ** round(np.log2(max(2 * float(np.sqrt(np.square(found).mean())), 1e-12)))
        return Backbone(BackboneSpec(**about, features=found.shape[1], scale=size), network)

    def features(self, images: NDArray[np.uint8], progress: Progress | None = None) -> NDArray[np.float32]:
        """φ(x) of uint8 images (n, C, H, W) of any size, (n, D); grey ones become colour."""
        found = self._computed(images, progress)
        if found.shape[1] != self.spec.features:
            raise Damaged(
                f"the backbone {printable(self.spec.name)} gives {found.shape[1]} features per image and not "
                f"{self.spec.features:,} as the memory says; `logcl verify` says what is intact"
            )
        if len(wrong := np.flatnonzero(~np.isfinite(found).all(axis=1))):
            raise BadInput(
                f"the backbone {printable(self.spec.name)} gives NaN or infinite features for image "
                f"{wrong[0]}; remove that image"
            )
        return found

    def samples(self, images: NDArray[np.uint8], progress: Progress | None = None) -> NDArray[np.uint8]:
        """The features as a memory takes them, (n, 1, 1, D)."""
        return self.stored(self.features(images, progress))

    def stored(self, features: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
        """Features (n, D) as a memory takes them, (n, 1, 1, D)."""
        return stored.to_bytes(features, self.spec.scale)[:, None, None, :]

    def _computed(self, images: NDArray[np.uint8], progress: Progress | None = None) -> NDArray[np.float32]:
        device = choose_device()
        # Channels last: a seventh faster on a CPU.
        self.network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        workers = torch.get_num_threads() if device.type == "cpu" else 1
        batch = max(min(_BATCH, _VALUES // math.prod(self.spec.image_shape)), 1)
        blocks = [images[start : start + batch] for start in range(0, len(images), batch)]
        found: list[NDArray[np.float32]] = []
        # Threads with a batch each: layers of such networks are too small to be split among threads.
        with (
            (progress or Silent()).track("computing features", max(len(images), 1)) as advance,
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            began = time.monotonic()
            try:
                for block in pool.map(self._block, blocks):
                    found.append(block)
                    done = batch * len(found)
                    rate = done / max(time.monotonic() - began, 1e-3)
                    advance(len(block), note=f"{rate:.0f} images per second")
            except BaseException:
                pool.shutdown(cancel_futures=True)  # Ctrl-C should not wait for all images
                raise
        return np.concatenate(found or [np.empty((0, self.spec.features), np.float32)])

    @torch.inference_mode()
    def _block(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        x = to_unit(torch.from_numpy(np.array(images)).to(choose_device()))
        x = fitted(x, self.spec.image_shape)
        mean, std = (torch.tensor(v, device=x.device)[:, None, None] for v in (self.spec.mean, self.spec.std))
        normalised = ((x - mean) / std).contiguous(memory_format=torch.channels_last)
        found: NDArray[np.float32] = self.network(normalised).float().cpu().numpy()
        return found


def fitted(images: Tensor, shape: ImageShape) -> Tensor:
    """Images (n, C, H, W) in [0, 1] as (n, *shape): grey to colour, resized, and cropped to the centre."""
    channels, height, width = shape
    if images.shape[1] != channels:
        if images.shape[1] != 1:
            raise BadInput(f"images have {images.shape[1]} channels; this backbone takes 1 or {channels}")
        images = images.expand(-1, channels, -1, -1)
    rows, columns = images.shape[2:]
    if (rows, columns) == (height, width):
        return images
    factor = max(height / rows, width / columns)
    size = max(round(rows * factor), height), max(round(columns * factor), width)
    images = nn.functional.interpolate(images, size, mode="bicubic", antialias=True).clamp_(0, 1)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return images[:, :, top : top + height, left : left + width]


def frozen(network: nn.Module) -> nn.Module:
    """In evaluation mode, or batch normalisation would follow the images of each task."""
    return network.eval().requires_grad_(False)


def _photographs() -> NDArray[np.uint8]:
    """Two photographs that come with scikit-learn, to measure how large features are."""
    from sklearn.datasets import load_sample_images

    images = np.stack(load_sample_images().images)
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
