"""What a memory chose by measuring its first images. No torch, as `inspect` shows it."""

from __future__ import annotations

from pydantic import Field

from logcl.core.settings import Frozen


class Trial(Frozen):
    """Bytes and quality of one candidate on the images it was tried on."""

    codec: str = Field(max_length=100)
    bytes_per_sample: float = Field(ge=0)
    psnr: float
    """Quality in dB."""
    loss: float | None = None
    """Accuracy that it costs a probe; None if it was not measured."""

    def __str__(self) -> str:
        if self.loss is None:
            return f"{self.codec} {self.bytes_per_sample:.1f} B per sample at {self.psnr:.1f} dB"
        points = f"{-100 * self.loss:+.1f} points of accuracy"
        return f"{self.codec}: {self.bytes_per_sample:.1f} B per sample, {points}"


class MirrorTrial(Frozen):
    """Whether images are mirrored in training, and why."""

    images: int = Field(ge=0)
    """Images that were compared with their mirror images."""
    told: float | None = Field(ge=0, le=1)
    """The part of them that were told from their mirror images, 0.5 by chance; None if there were too few."""
    mirror: bool
    """What was chosen."""

    def __str__(self) -> str:
        chosen = "images are mirrored in training" if self.mirror else "images are not mirrored in training"
        if self.told is None:
            return f"{chosen}: {self.images} are too few to measure"
        return f"{chosen}: {self.told:.0%} of {self.images:,} can be told from their mirror images"
