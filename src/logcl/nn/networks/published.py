"""The classifiers of the paper's appendix: a "LeNet with additional dropout layers" and ResNet18."""

from __future__ import annotations

from torch import Tensor, nn

from logcl.core.settings import ImageShape
from logcl.nn.networks.layers import BatchNorm, ImageClassifier


class LeNet(ImageClassifier):
    """Three strided convolutions with w, 2w and 4w channels and a hidden layer, with dropout after each.

    The appendix gives no sizes. These are from the `LeNet` with dropout in the public code of BinPlay's first
    author (KamilDeja/multiband_vae): 4x4 kernels with stride 2, batch normalisation, LeakyReLU, dropout 0.6,
    84 hidden units at w = 64, scaled with the width. Images must be at least 8x8.
    """

    def __init__(self, image_shape: ImageShape, classes: int, width: int) -> None:
        super().__init__()
        channels, rows, columns = image_shape
        layers: list[nn.Module] = []
        for out in (width, 2 * width, 4 * width):
            layers += [
                nn.Conv2d(channels, out, 4, stride=2, padding=1, bias=False),
                BatchNorm(out),
                nn.LeakyReLU(),
                nn.Dropout(0.6),
            ]
            channels = out
        hidden = max(round(84 * width / 64), 1)
        self.features = nn.Sequential(
            *layers,
            nn.Flatten(),
            nn.Linear(channels * (rows // 8) * (columns // 8), hidden),
            nn.LeakyReLU(),
            nn.Dropout(0.6),
        )
        self.head = nn.Linear(hidden, classes)

    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, hidden)."""
        features: Tensor = self.features(image)
        return features


class ResNet18(ImageClassifier):
    """He et al. 2016, the variant for small images: a 3x3 stem without pooling, four stages of two blocks.

    The stages have w, 2w, 4w and 8w channels. w = 64 is standard, 11.2 million weights for 100 classes;
    w = 20 is the "reduced ResNet18" of the online continual-learning literature, 1.1 million weights.
    """

    def __init__(self, image_shape: ImageShape, classes: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(image_shape[0], width, 3, padding=1, bias=False), BatchNorm(width), nn.ReLU()
        )
        blocks: list[nn.Module] = []
        channels = width
        for stage in range(4):
            out = width * 2**stage
            blocks += [BasicBlock(channels, out, stride=1 if stage == 0 else 2), BasicBlock(out, out, 1)]
            channels = out
        self.stages = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def embed(self, image: Tensor) -> Tensor:
        """(n, C, H, W) → (n, 8w)."""
        features: Tensor = self.stages(self.stem(image)).mean(dim=(2, 3))
        return features


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False),
            BatchNorm(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            BatchNorm(out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride=stride, bias=False), BatchNorm(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, H, W) → (n, out, ⌈H / stride⌉, ⌈W / stride⌉)."""
        return nn.functional.relu(self.residual(x) + self.shortcut(x))
