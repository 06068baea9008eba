"""A decoder with a table whose rows are shared by several samples, which sign masks separate.

    address ── row of the table ─┐
    signs ─────────────────────── × ── hidden layer ── pixels

Samples i, i + rows, i + 2·rows, … share one row of `width` numbers. It is initialised with the sum of their
latents, each multiplied by its own signs (the superposition of Cheung et al. 2019, with samples in place of
tasks). The signs are orthogonal, so the hidden layer can separate the latents: nothing is lost while all
latents of a row together have at most `width` numbers. Then everything is trained.

This stores width / sharing numbers per sample as weights, no more than a table with one row per sample would.
But the number of rows is fixed, so the size of a level is set by the width, as in the paper: with more
samples, more of them share a row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from logcl.core.settings import ImageShape

_SPREAD = 0.5  # standard deviation of the table after `superpose`: sets its effective learning rate


class SuperposedDecoder(nn.Module):
    """2^bits rows of `width` numbers → hidden units → pixels."""

    def __init__(self, image_shape: ImageShape, bits: int, width: int) -> None:
        super().__init__()
        units = hidden_units(image_shape)
        self.image_shape = image_shape
        self.bits = bits
        self.table = nn.Embedding(2**bits, width)
        self.hidden = nn.Linear(width, units)
        self.pixels = nn.Linear(units, math.prod(image_shape))

    def forward(self, code: Tensor) -> Tensor:
        """Address and signs (n, bits + width) of ±1 → (n, C, H, W)."""
        places = 2 ** torch.arange(self.bits, device=code.device)
        address = ((code[:, : self.bits] > 0) * places).sum(dim=1)
        return self.look_up(address, code[:, self.bits :])

    def look_up(self, address: Tensor, signs: Tensor) -> Tensor:
        """Row numbers (n,) and masks (n, width) of ±1 → (n, C, H, W)."""
        return self.paint(self.hidden(self.table(address) * signs))

    def paint(self, hidden: Tensor) -> Tensor:
        """Hidden units before their ReLU (n, units) → (n, C, H, W) in [0, 1]."""
        image: Tensor = torch.sigmoid(self.pixels(nn.functional.relu(hidden))).unflatten(1, self.image_shape)
        return image


def hidden_units(image_shape: ImageShape) -> int:
    """A third of the pixel values, from 32 to 512, at every level: only the table shrinks with the level."""
    return min(max(math.prod(image_shape) // 3, 32), 512)


def latent_numbers(width: int, sharing: int, image_shape: ImageShape) -> int:
    """Latent numbers per sample if `sharing` samples share a row of `width` numbers."""
    return min(width // _block(sharing, width), math.prod(image_shape))


@torch.no_grad()
def superpose(decoder: SuperposedDecoder, latents: Tensor, masks: Tensor, hidden: nn.Linear) -> None:
    """Set the table and the hidden layer so that row a with mask q gives hidden(latents[q, a]).

    latents (sharing, rows, d), masks (sharing, width) of ±1 from consecutive numbers, hidden d → units. Each
    latent number is spread over a block of columns in which the masks are orthogonal, if there are not too
    many.
    """
    sharing, rows, numbers = latents.shape
    width = masks.shape[1]
    block = _block(sharing, width)
    spread = torch.eye(numbers, device=masks.device).repeat_interleave(block, dim=1)
    spread = nn.functional.pad(spread, (0, width - numbers * block))
    table = torch.zeros(rows, width, device=masks.device)
    for latent, mask in zip(latents, masks, strict=True):
        table += latent @ spread * mask / block
    scale = table.std().clamp(min=1e-9) / _SPREAD
    decoder.table.weight.copy_(table / scale)
    decoder.hidden.weight.copy_(hidden.weight @ spread * scale)
    decoder.hidden.bias.copy_(hidden.bias)


def _block(sharing: int, width: int) -> int:
    """Columns in which `sharing` masks are orthogonal: a power of two, at most `width`."""
    return 1 << min((sharing - 1).bit_length(), width.bit_length() - 1)
