"""Candidates for the codec of a memory, measured on its first images. No torch, as `inspect` shows them."""

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
