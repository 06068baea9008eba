"""EfficientNet without its classifier. Imported only if its package is installed."""

from __future__ import annotations

from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor


class Pooled(EfficientNet):  # type: ignore[misc]
    """The mean of the last feature maps. A class of its own module, so that pickles can refer to it."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, H, W) → (n, 1280)."""
        pooled: Tensor = self.extract_features(x).mean(dim=(2, 3))
        return pooled
